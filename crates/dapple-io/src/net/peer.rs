//! Accepting connections of any kind.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::Connection;

/// Accepts connections. TCP and Unix sockets do, and others can be implemented elsewhere, for
/// connections in memory or in user space.
///
/// ```
/// use std::io;
/// use dapple_io::net::{Listener, Peer, TcpListener, TcpStream};
///
/// /// Turns away what comes from other machines.
/// struct Local(TcpListener);
///
/// impl Listener for Local {
///     type Connection = TcpStream;
///
///     async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
///         loop {
///             let (stream, addr) = self.0.accept().await?;
///             if addr.ip().is_loopback() {
///                 return Ok((stream, Peer::Tcp(addr)));
///             }
///         }
///     }
/// }
/// ```
pub trait Listener: Send + Sync + 'static {
    /// The type of its connections.
    type Connection: Connection;

    /// The next connection.
    ///
    /// # Cancel safety
    ///
    /// Must be cancel safe: dropped before it resolves, it has accepted nothing.
    ///
    /// # Errors
    ///
    /// The listener is of no more use. An error of one connection, or one that passes, is no error
    /// here: the listener waits.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Connection, Peer)>> + Send;

    /// [`Connection::read_waited`] will be called for connections accepted from now on.
    fn note_arrivals(&self) {}

    /// From now on the clients of new connections have to try again, and then reach another
    /// listener; the program can still accept connections in progress. Only for a listener that is
    /// about to be dropped, with a socket that no other process shares: that process would get no
    /// new connections either. By default does nothing.
    fn refuse_new(&self) {}
}

/// The other end of a connection. Requests served by `dapple::serve` have it among their
/// extensions.
///
/// ```
/// use dapple_io::net::Peer;
///
/// fn greet(peer: &Peer) -> String {
///     match peer.ip() {
///         Some(ip) => format!("hello, {ip}"),
///         None => "hello".to_owned(),
///     }
/// }
/// assert_eq!(greet(&Peer::Tcp(([192, 0, 2, 1], 80).into())), "hello, 192.0.2.1");
/// assert_eq!(greet(&Peer::Unix), "hello");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// A TCP address, of the kernel's or of another implementation.
    Tcp(SocketAddr),
    /// A process on this machine, by a Unix socket.
    Unix,
    /// A peer without an address, such as the other end of a connection in memory.
    Unnamed,
}

impl Peer {
    /// Its address and port, if it has them.
    pub fn addr(&self) -> Option<SocketAddr> {
        match self {
            Peer::Tcp(addr) => Some(*addr),
            Peer::Unix | Peer::Unnamed => None,
        }
    }

    /// Its address, if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.addr().map(|addr| addr.ip())
    }

    /// The network that counts as one client: an IPv4 address, even if written as an IPv6 address,
    /// or a `/64` of IPv6. `None` without an address.
    ///
    /// ```
    /// use dapple_io::net::Peer;
    ///
    /// let network = |addr: &str| Peer::Tcp(addr.parse().expect("an address")).network();
    /// assert_eq!(network("[::ffff:192.0.2.1]:80"), network("192.0.2.1:81"));
    /// assert_eq!(network("[2001:db8::1]:80"), network("[2001:db8::ffff:2]:80"));
    /// assert_ne!(network("[2001:db8::1]:80"), network("[2001:db8:0:1::1]:80"));
    /// ```
    pub fn network(&self) -> Option<IpAddr> {
        self.ip().map(|ip| match ip.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            other => other,
        })
    }
}

impl Listener for TcpListener {
    type Connection = TcpStream;

    fn note_arrivals(&self) {
        // Otherwise the kernel's coarse clock must do.
        let _ = TcpListener::note_arrivals(self);
    }

    fn refuse_new(&self) {
        // If the kernel refuses, clients that connect right now may be reset.
        let _ = TcpListener::refuse_new(self);
    }

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, addr) = TcpListener::accept(self).await?;
        Ok((stream, Peer::Tcp(addr)))
    }
}

impl Listener for UnixListener {
    type Connection = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        Ok((UnixListener::accept(self).await?, Peer::Unix))
    }
}
