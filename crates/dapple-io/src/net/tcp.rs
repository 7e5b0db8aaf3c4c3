//! A TCP connection.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::address::ToAddresses;
use super::arrival::{self, Arrival};
use super::connect::Connector;
use super::half::{ReadHalf, WriteHalf};
use super::socket::{Accepted, Stream};
use crate::driver::{Direction, Source, Step};
use crate::environment;
use crate::stream::{RawRead, raw_write, read_methods, step, write_methods};

/// A TCP connection.
///
/// Nagle's algorithm is off (`TCP_NODELAY`): together with the peer's delayed acknowledgements it
/// stalls a response written in two pieces by 44 ms. Gather small pieces with
/// [`write_vectored`](Self::write_vectored) or [`SendQueue`](crate::SendQueue) instead, or turn it
/// on again with [`set_nodelay`](Self::set_nodelay).
///
/// Methods take `&self`, so one task may read while another writes. With the features of this crate
/// it implements the I/O traits of `futures-io`, `tokio` and `hyper`. Those keep one waker per
/// direction: of several tasks that use the traits for the same direction, only the last is woken.
/// Dropping it closes the connection; see [`shutdown`](Self::shutdown) for closing in steps.
pub struct TcpStream {
    source: Source<Stream>,
    arrival: Arrival,
}

impl TcpStream {
    /// Connects to an address, or to a host by name: `"example.com:80"`, `("example.com", 80)`.
    ///
    /// The runtime's [`Resolver`](super::Resolver) looks names up. Several addresses race as RFC
    /// 8305 says; [`Connector`](super::Connector) has the details and the settings.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts and closes their descriptors.
    ///
    /// # Errors
    ///
    /// Those of the connection, such as `ConnectionRefused` and `TimedOut`; for several addresses,
    /// one error that names them all. Those of [`resolve`](super::resolve). `InvalidInput` if `to`
    /// is neither an address nor a name with a port. There is no runtime here.
    pub async fn connect(to: impl ToAddresses) -> io::Result<Self> {
        Connector::new().connect(to).await
    }

    /// Connects to one address.
    pub(crate) async fn connect_to(addr: SocketAddr) -> io::Result<Self> {
        if let Some(network) = environment::network_of(addr.ip()) {
            let source = Source::connecting(Stream::Network(network.connect(addr)?))?;
            source.io(Direction::Write, is_connected).await?;
            return Ok(TcpStream::of(source));
        }
        let kind = Type::STREAM.nonblocking();
        let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&addr.into()) {
            Ok(()) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        // Registered only now: before the attempt a socket counts as hung up.
        let source = Source::connecting(Stream::Kernel(socket.into()))?;
        source.io(Direction::Write, is_connected).await?;
        Ok(TcpStream::of(source))
    }

    /// Takes over a connection of the standard library, or another socket converted to one.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let source = Source::new(Stream::Kernel(stream))?;
        Ok(TcpStream::of(source))
    }

    /// A connection that the kernel made non-blocking and without delay.
    pub(super) fn accepted(accepted: Accepted) -> io::Result<Self> {
        let stream = match accepted {
            Accepted::Kernel(fd) => Stream::Kernel(fd.into()),
            Accepted::Network(socket) => Stream::Network(socket),
        };
        // The first bytes are often there already, and a short connection ends without any wait.
        let source = Source::unwatched(stream)?;
        Ok(TcpStream::of(source))
    }

    fn of(source: Source<Stream>) -> Self {
        TcpStream { source, arrival: Arrival::default() }
    }

    read_methods!();
    write_methods!();

    /// Like `read`, but leaves the bytes to be read again. Cancel safe.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let peek = |stream: &Stream| Ok(Step::More(stream.peek(buf)?));
        self.source.io(Direction::Read, peek).await
    }

    /// Ends one or both directions: after `Write` the peer reads the end of the stream. A
    /// connection that has already ended is not an error.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.source.descriptor().shutdown(how) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Writes the last bytes now and ends the writing direction, in one packet if they fit: for a
    /// short reply that halves the kernel's work. Returns the number of bytes written; if that is
    /// not all of them, the direction has not been ended.
    ///
    /// This does not read the peer's unread data, so the notes at [`shutdown`](Self::shutdown)
    /// apply.
    ///
    /// ```
    /// use dapple_io::net::{TcpListener, TcpStream};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let client = TcpStream::connect(listener.local_addr()?.to_string()).await?;
    ///     let (server, _) = listener.accept().await?;
    ///     assert_eq!(server.try_finish(b"good bye")?, 8);
    ///     let mut buf = [0; 9];
    ///     assert_eq!(client.read(&mut buf).await?, 8);
    ///     assert_eq!(client.read(&mut buf).await?, 0, "the end");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, and those of `write`.
    pub fn try_finish(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        // Says that more follows, namely the end; other bytes would be sent together with these.
        let send = |stream: &Stream| match stream {
            Stream::Kernel(stream) => Ok(step(rustix::net::send(stream, buf, flags)?, buf.len())),
            Stream::Network(socket) => Ok(step(socket.send(buf)?, buf.len())),
        };
        let len = self.source.try_io(Direction::Write, send)?;
        if len == buf.len() {
            self.shutdown(Shutdown::Write)?;
        }
        Ok(len)
    }

    /// From now on closing it resets the connection.
    pub(crate) fn abort(&self) {
        self.source.descriptor().abort();
    }

    /// Two halves, which different tasks can own. Dropping the writing half ends that direction.
    pub fn into_split(self) -> (ReadHalf<TcpStream>, WriteHalf<TcpStream>) {
        let stream = Arc::new(self);
        (ReadHalf::new(stream.clone()), WriteHalf::new(stream))
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.descriptor().peer_addr()
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.descriptor().local_addr()
    }

    /// The time since the peer's latest bytes reached this machine, whether read or not
    /// (`TCP_INFO`). If no bytes came since the last read, the bytes of that read have waited in
    /// the kernel for this long. In steps of the kernel's clock, 1 to 10 ms.
    ///
    /// On a connection that has received nothing, the time since it was made. One system call,
    /// about half a microsecond.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; none are known.
    pub fn since_last_received(&self) -> io::Result<Duration> {
        match self.source.descriptor() {
            Stream::Kernel(stream) => since_last_received(stream),
            Stream::Network(_) => Ok(Duration::ZERO),
        }
    }

    /// Sets whether the I/O traits note when the bytes that they read reached this machine, for
    /// [`read_waited`](Self::read_waited). A read then takes about a tenth of a microsecond longer.
    pub fn note_arrivals(&self, is_wanted: bool) {
        self.arrival.want(is_wanted);
    }

    /// How long ago the last byte that the I/O traits have read reached this machine.
    ///
    /// Accurate to some microseconds if [`note_arrivals`](Self::note_arrivals) was called before
    /// that read and [`TcpListener::note_arrivals`](super::TcpListener::note_arrivals) before the
    /// connection was accepted. It uses the system's clock: if that clock is set, the value is
    /// wrong by as much. Otherwise as [`since_last_received`](Self::since_last_received).
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn read_waited(&self) -> io::Result<Duration> {
        self.arrival.ago().map_or_else(|| self.since_last_received(), Ok)
    }

    /// Whether small writes are sent at once, the default here.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.source.descriptor().nodelay()
    }

    /// `false` turns Nagle's algorithm on.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.source.descriptor().set_nodelay(nodelay)
    }

    /// Whether this is a socket of the kernel. One of a [`Network`](crate::environment::Network) or a simulation has no descriptor: there
    /// [`as_fd`](AsFd::as_fd) panics.
    pub fn has_descriptor(&self) -> bool {
        matches!(self.source.descriptor(), Stream::Kernel(_))
    }
}

impl RawRead for TcpStream {
    fn raw_poll_read(&self, cx: &mut Context<'_>, buf: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>> {
        if !self.arrival.is_wanted() || matches!(self.source.descriptor(), Stream::Network(_)) {
            return self.source.poll_read(cx, buf);
        }
        self.source.poll_io(cx, Direction::Read, None, |stream| {
            let (len, at) = arrival::read(stream, buf)?;
            self.arrival.note(at);
            Ok(step(len, buf.len()))
        })
    }
}

raw_write!(TcpStream, |stream| stream.shutdown(Shutdown::Write));

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

fn since_last_received(stream: &std::net::TcpStream) -> io::Result<Duration> {
    // SAFETY: the structure consists of integers, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as the reference lives; the kernel writes at most
    // `len` bytes to `info`, which has as many, and any bytes are valid integers.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::from_millis(info.tcpi_last_data_recv.into()))
}

/// The state of an attempt to connect.
fn is_connected(stream: &Stream) -> io::Result<Step<()>> {
    let stream = match stream {
        Stream::Kernel(stream) => stream,
        Stream::Network(socket) => {
            return if socket.is_connected()? { Ok(Step::More(())) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
    };
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(Step::More(())),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error),
    }
}
