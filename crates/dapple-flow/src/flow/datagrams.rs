//! Datagrams: a source and a sink of them, and broadcast to groups of hosts (Gribble, section 5.1).

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_io::net::{ToSocketAddrs, UdpSocket};

use super::chain::{Flow, Upstream, flow};
use super::handler::{Handler, Receipt};

/// The datagrams of UDP that come to a port: a source of [`Datagram`]s. [`chain`](Self::chain) sends them to a handler, so the port is
/// the name of the handler, under which other hosts reach it.
///
/// Datagrams may be lost, repeated and reordered, and those that find no room at the socket are lost: nothing makes a sender wait.
///
/// ```
/// use dapple_flow::flow::{Datagram, Datagrams};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let echo = Datagrams::bind("127.0.0.1:0")?;
///     let port = echo.local_addr()?;
///     // Each goes back to its sender.
///     let sink = echo.sink();
///     let flow = echo.chain(sink);
///     let mut own = Datagrams::bind("127.0.0.1:0")?;
///     own.sink().send(Datagram::new(port, "hello")).await?;
///     let back = own.next().await.expect("the source does not end")?;
///     assert_eq!((back.peer, &back.bytes[..]), (port, &b"hello"[..]));
///     drop(flow);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Datagrams {
    socket: Arc<UdpSocket>,
    buf: Box<[u8]>,
    /// A datagram that was received and not taken.
    ready: Option<Datagram>,
    has_ended: bool,
}

/// A datagram, with its other side: the host that sent it, or the one to send it to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram {
    /// The address of the other side, or of a group of hosts.
    pub peer: SocketAddr,
    /// The content.
    pub bytes: Bytes,
}

/// Sends datagrams, each to the address that it names, as a [`Handler`] or one by one. Clones are the same sink.
///
/// It is best-effort, as the network is: as a handler it drops datagrams that find no room, and [`lost`](Self::lost) counts them.
#[derive(Clone)]
pub struct DatagramSink {
    socket: Arc<UdpSocket>,
    lost: Arc<AtomicU64>,
}

/// Sends bytes to all members of a group of hosts, as a [`Handler`] or one by one: best-effort broadcast.
#[derive(Clone, Debug)]
pub struct Broadcast {
    sink: DatagramSink,
    group: SocketAddr,
}

impl Datagram {
    /// Bytes for an address.
    pub fn new(peer: SocketAddr, bytes: impl Into<Bytes>) -> Datagram {
        Datagram { peer, bytes: bytes.into() }
    }
}

impl Datagrams {
    /// The datagrams to this address. Port 0 lets the system choose one. Never blocks: names are not looked up.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind`].
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Datagrams> {
        Ok(Datagrams::of(UdpSocket::bind(addr)?))
    }

    /// The datagrams to a port of a group of hosts, of which this host becomes a member. `interface` is the number of the interface that
    /// the group is on, or 0 for the system's choice.
    ///
    /// ```
    /// use dapple_flow::flow::{Datagrams, Queue};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(2).build()?;
    /// # let loopback = 1;
    /// runtime.block_on(async {
    ///     let first = Datagrams::bind_group("239.129.7.2:0".parse().unwrap(), loopback)?;
    ///     let group = first.local_addr()?;
    ///     // Each member has a handler for this port.
    ///     let (one, other) = (Queue::new(10), Queue::new(10));
    ///     let broadcast = first.broadcast();
    ///     let _flows = (first.chain(one.clone()), Datagrams::bind_group(group, loopback)?.chain(other.clone()));
    ///     broadcast.send("to all").await?;
    ///     for member in [one, other] {
    ///         assert_eq!(member.pop().await.expect("it is open").bytes, "to all");
    ///     }
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::bind_group`].
    pub fn bind_group(group: SocketAddr, interface: u32) -> io::Result<Datagrams> {
        Ok(Datagrams::of(UdpSocket::bind_group(group, interface)?))
    }

    fn of(socket: UdpSocket) -> Datagrams {
        let buf = vec![0; LEN_MAX].into_boxed_slice();
        Datagrams { socket: Arc::new(socket), buf, ready: None, has_ended: false }
    }

    /// The address, with the port that the system chose.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// A sink that sends from this port.
    pub fn sink(&self) -> DatagramSink {
        DatagramSink { socket: self.socket.clone(), lost: Arc::default() }
    }

    /// A sink that sends to the group of this source.
    ///
    /// # Panics
    ///
    /// If it has none: see [`bind_group`](Self::bind_group).
    pub fn broadcast(&self) -> Broadcast {
        let group = self.local_addr().ok().filter(|addr| addr.ip().is_multicast());
        Broadcast { sink: self.sink(), group: group.expect("bind_group has made the source") }
    }

    /// The next datagram. `None` only after an error, which makes the source useless.
    ///
    /// Cancel safe: a received datagram stays in the source.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::recv_from`].
    pub async fn next(&mut self) -> Option<io::Result<Datagram>> {
        poll_fn(|cx| self.poll_datagram(cx)).await
    }

    /// Sends the datagrams to a handler from now on: a queue, a callback, a [`DatagramSink`], or your own. While it has no room, new ones
    /// wait at the socket, up to its bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the flow ends it; [`Flow`] says what happens to its events.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn chain(self, to: impl Handler<Datagram>) -> Flow<Datagrams> {
        flow(self, Some, to)
    }

    fn poll_datagram(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Datagram>>> {
        self.poll_ready(cx).map(|ready| match ready {
            Ok(true) => self.ready.take().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl Upstream for Datagrams {
    type Event = Datagram;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.ready.is_some() || self.has_ended {
            return Poll::Ready(Ok(self.ready.is_some()));
        }
        self.socket.poll_recv_from(cx, &mut self.buf).map(|received| match received {
            Ok((len, peer)) => {
                self.ready = Some(Datagram { peer, bytes: Bytes::copy_from_slice(&self.buf[..len]) });
                Ok(true)
            }
            Err(error) => {
                self.has_ended = true;
                Err(error)
            }
        })
    }

    fn take(&mut self) -> Option<Datagram> {
        self.ready.take()
    }
}

/// The datagrams. Cancel safe.
impl futures_core::Stream for Datagrams {
    type Item = io::Result<Datagram>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_datagram(cx)
    }
}

impl DatagramSink {
    /// Sends one datagram, after there is room for it.
    ///
    /// Cancel safe: dropped before it resolves, it has sent nothing.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::send_to`], such as a datagram that is too long. The sink continues with others.
    pub async fn send(&self, datagram: Datagram) -> io::Result<()> {
        self.socket.send_to(&datagram.bytes, datagram.peer).await.map(drop)
    }

    /// The number of datagrams that were dropped as this was a handler, for want of room or after an error.
    pub fn lost(&self) -> u64 {
        // Relaxed: a count.
        self.lost.load(Ordering::Relaxed)
    }

    fn send_now(&self, bytes: &[u8], to: SocketAddr) {
        if let Err(error) = self.socket.try_send_to(bytes, to) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, %to, "a datagram is lost");
        }
    }
}

impl Handler<Datagram> for DatagramSink {
    fn give(&mut self, events: Vec<Datagram>, _receipt: Receipt) {
        events.iter().for_each(|datagram| self.send_now(&datagram.bytes, datagram.peer));
    }
}

impl Broadcast {
    /// The address of the group.
    pub fn group(&self) -> SocketAddr {
        self.group
    }

    /// Sends bytes to all members, after there is room.
    ///
    /// Cancel safe: dropped before it resolves, it has sent nothing.
    ///
    /// # Errors
    ///
    /// As [`DatagramSink::send`].
    pub async fn send(&self, bytes: impl Into<Bytes>) -> io::Result<()> {
        self.sink.send(Datagram::new(self.group, bytes)).await
    }

    /// As [`DatagramSink::lost`].
    pub fn lost(&self) -> u64 {
        self.sink.lost()
    }
}

impl<B: AsRef<[u8]> + Send + 'static> Handler<B> for Broadcast {
    fn give(&mut self, events: Vec<B>, _receipt: Receipt) {
        events.iter().for_each(|bytes| self.sink.send_now(bytes.as_ref(), self.group));
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams").field("at", &self.local_addr().ok()).finish()
    }
}

impl fmt::Debug for DatagramSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSink")
            .field("from", &self.socket.local_addr().ok())
            .field("lost", &self.lost())
            .finish()
    }
}

/// The longest datagram.
const LEN_MAX: usize = 65_535;
