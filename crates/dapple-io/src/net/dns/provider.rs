//! hickory's interface to a runtime: sockets, timers and background tasks, all of them Dapple's.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::Handle;
use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};

use super::Counters;
use crate::net::{TcpStream, UdpSocket};
use crate::time;

/// Runs a hickory resolver on Dapple, for record types that [`net::Resolver`](crate::net::Resolver)
/// does not look up, such as mail servers and texts. Pass it to
/// `hickory_resolver::Resolver::builder_with_config`, with hickory's features for tokio switched
/// off (`default-features = false`).
///
/// A name server with a `bind_addr` gets only UDP queries: TCP connections to it fail with
/// `Unsupported`.
///
/// ```
/// use hickory_resolver::Resolver;
/// use hickory_resolver::config::{NameServerConfig, ResolverConfig};
///
/// let servers = vec![NameServerConfig::udp_and_tcp("127.0.0.1".parse()?)];
/// let config = ResolverConfig::from_parts(None, vec![], servers);
/// let resolver = Resolver::builder_with_config(config, dapple_io::hickory_rt::Provider::new()).build()?;
/// # let _ = resolver;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Provider(pub(super) Arc<Counters>);

impl Provider {
    /// A provider that uses the runtime that is current at each use.
    pub fn new() -> Self {
        Provider::default()
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Provider")
    }
}

impl RuntimeProvider for Provider {
    type Handle = Tasks;
    type Timer = Timers;
    type Udp = Datagrams;
    type Tcp = Stream;

    fn create_handle(&self) -> Tasks {
        Tasks
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Stream>>>> {
        Counters::count(&self.0.tcp_connections);
        Box::pin(async move {
            if bind.is_some() {
                let what = "a name server with `bind_addr` cannot be asked by TCP on Dapple; leave it out";
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            let connecting = TcpStream::connect_to(server);
            Ok(Stream(time::timeout(limit.unwrap_or(CONNECT_LIMIT), connecting).await??))
        })
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Datagrams>>>> {
        let counters = self.0.clone();
        Box::pin(async move {
            let socket = std::net::UdpSocket::bind(local)?;
            // So that no other host can answer, and so that the caller learns at once if the server
            // does not run. Linux still allows sending to the same address.
            socket.connect(server)?;
            Ok(Datagrams { socket: UdpSocket::from_std(socket)?, counters })
        })
    }
}

/// Starts tasks that a shutdown need not wait for.
#[derive(Clone)]
pub struct Tasks;

impl Spawn for Tasks {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime nothing would poll it; its request then ends with an error.
        if let Some(handle) = Handle::try_current() {
            let _detached = handle.new_color().spawn_background(future);
        }
    }
}

/// A socket for queries to one server.
pub struct Datagrams {
    socket: UdpSocket,
    counters: Arc<Counters>,
}

impl DnsUdpSocket for Datagrams {
    type Time = Timers;

    fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.socket.poll_recv_from(cx, buf)
    }

    fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        let sent = self.socket.poll_send_to(cx, buf, target);
        if sent.is_ready() {
            Counters::count(&self.counters.udp_queries);
        }
        sent
    }
}

/// A connection to a server.
pub struct Stream(TcpStream);

impl DnsTcpStream for Stream {
    type Time = Timers;
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut &self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &self.get_mut().0).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &self.get_mut().0).poll_close(cx)
    }
}

/// Dapple's clock.
pub struct Timers;

// The form that `#[async_trait]` gives these methods.
impl Time for Timers {
    fn delay_for<'a>(duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(time::sleep(duration))
    }

    fn timeout<'a, F>(duration: Duration, future: F) -> Pin<Box<dyn Future<Output = io::Result<F::Output>> + Send + 'a>>
    where
        F: 'a + 'static + Future + Send,
    {
        Box::pin(async move { Ok(time::timeout(duration, future).await?) })
    }
}

/// The limit if hickory sets none.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
