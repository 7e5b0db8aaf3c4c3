//! Connecting to targets with several addresses, and looking names up.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::address::{Target, ToAddresses};
use super::host::Host;
use super::lookup::Lookup;
use super::race::Race;
use super::tcp::TcpStream;

/// Connects to a host by name or address, like [`TcpStream::connect`] (the papers' `tcpconnect`).
///
/// ```
/// use dapple_io::net::{TcpListener, tcp_connect};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let port = listener.local_addr()?.port();
///     let stream = tcp_connect("localhost", port).await?;
///     assert_eq!(stream.peer_addr()?.port(), port);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancel safety
///
/// If dropped before it resolves, it ends all attempts and closes their descriptors.
///
/// # Errors
///
/// As [`TcpStream::connect`].
pub async fn tcp_connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((host, port)).await
}

/// Looks a host up: all its addresses, at least one, those of IPv6 first. Addresses and `localhost`
/// need no look-up.
///
/// With the feature `dns` (on by default) it asks `/etc/hosts` and the name servers of
/// `/etc/resolv.conf`, as [`Resolver`] says, or the resolver set by [`Resolver::install`]; without
/// it the system's resolver, which blocks, in the blocking pool.
///
/// [`Resolver`]: crate::net::Resolver
/// [`Resolver::install`]: crate::net::Resolver::install
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let addresses = runtime.block_on(dapple_io::net::resolve("localhost"))?;
/// assert!(addresses.iter().all(|address| address.is_loopback()));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancel safety
///
/// Safe: dropped before it resolves, it starts no more queries. Queries in progress continue, for
/// the cache.
///
/// # Errors
///
/// `NotFound`: there is no such host, or it has no address. `TimedOut`: no server answered.
/// `InvalidInput`: this is not a host name; it must have no port. Otherwise the error of the
/// servers or the kernel. There is no runtime here.
pub async fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    match Host::parse(host, 0)? {
        Host::Addresses(addrs) => Ok(ipv6_first(addrs)),
        Host::Name(name) => Lookup::start(name, None)?.all().await,
    }
}

/// In the order in which names return addresses.
pub(super) fn ipv6_first(addrs: Vec<SocketAddr>) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = addrs.into_iter().map(|addr| addr.ip()).collect();
    ips.sort_by_key(IpAddr::is_ipv4);
    ips
}

/// Settings for connecting to a host with several addresses (Happy Eyeballs, RFC 8305).
///
/// Addresses of IPv6 and IPv4 take turns. For a name IPv6 goes first, otherwise the first of the
/// given addresses (for `localhost`, 127.0.0.1, where most services are). If an attempt has failed,
/// or has not succeeded for a while, the next address is tried in parallel. The first to succeed
/// wins, and the others are dropped and closed. Both kinds of addresses are looked up at the same
/// time, and connecting begins with the first one found.
///
/// ```
/// use std::time::Duration;
/// use dapple_io::net::{Connector, TcpListener};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut connector = Connector::new();
///     connector.attempt_delay(Duration::from_millis(100));
///     // Where nobody listens on ::1, the second address of `localhost` is tried at once.
///     let stream = connector.connect(("localhost", listener.local_addr()?.port())).await?;
///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    pub(super) attempt_delay: Duration,
    pub(super) resolution_delay: Duration,
    #[cfg(feature = "dns")]
    resolver: Option<super::dns::Resolver>,
}

impl Default for Connector {
    fn default() -> Self {
        Connector::new()
    }
}

impl Connector {
    /// With the delays that RFC 8305 recommends.
    pub fn new() -> Self {
        Connector {
            attempt_delay: Duration::from_millis(250),
            resolution_delay: Duration::from_millis(50),
            #[cfg(feature = "dns")]
            resolver: None,
        }
    }

    /// How long an attempt runs alone before the next one begins, at least 10 ms. Default: 250 ms.
    pub fn attempt_delay(&mut self, delay: Duration) -> &mut Self {
        self.attempt_delay = delay.max(Duration::from_millis(10));
        self
    }

    /// How long to wait for addresses of IPv6 after those of IPv4 came first. Default: 50 ms.
    pub fn resolution_delay(&mut self, delay: Duration) -> &mut Self {
        self.resolution_delay = delay;
        self
    }

    /// Sets the resolver for names, instead of the runtime's.
    #[cfg(feature = "dns")]
    pub fn resolver(&mut self, resolver: &super::dns::Resolver) -> &mut Self {
        self.resolver = Some(resolver.clone());
        self
    }

    /// Connects to the first of the addresses that answers.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts and closes their descriptors.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`].
    pub async fn connect(&self, to: impl ToAddresses) -> io::Result<TcpStream> {
        match to.to_addresses()?.0 {
            Target::One(addr) => TcpStream::connect_to(addr).await,
            Target::Several(addrs) => Race::new(self, addrs).await,
            Target::Name { host, port } => {
                #[cfg(feature = "dns")]
                let lookup = Lookup::start(&host, self.resolver.clone())?;
                #[cfg(not(feature = "dns"))]
                let lookup = Lookup::start(&host, None)?;
                Race::with_names(self, &host, port, lookup).await
            }
        }
    }
}
