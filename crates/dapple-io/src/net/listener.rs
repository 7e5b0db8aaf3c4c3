//! A listening TCP socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use super::address::{ToSocketAddrs, try_each};
use super::arrival::note_arrivals;
use super::socket::{Accepted, Listening};
use super::tcp::TcpStream;
use crate::descriptors::is_shortage;
use crate::driver::{Direction, Shared, Source, Step, current};
use crate::environment;

/// Accepts TCP connections.
///
/// ```
/// use dapple_io::net::TcpListener;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let client = std::net::TcpStream::connect(listener.local_addr()?)?;
///     let (_stream, peer) = listener.accept().await?;
///     assert_eq!(peer, client.local_addr()?);
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener {
    source: Source<Listening>,
    shared: Arc<Shared>,
}

impl TcpListener {
    /// Listens on the first of the addresses that allows it. For port 0 the kernel chooses one.
    ///
    /// The address can be used again at once after a restart (`SO_REUSEADDR`), the backlog is the
    /// longest that the system allows, and accepted streams inherit `TCP_NODELAY` (see
    /// [`TcpStream`]). At most some 128 KiB of the bytes written to an accepted stream wait in the
    /// kernel to be sent (`TCP_NOTSENT_LOWAT`). So a peer that reads nothing costs no megabytes of
    /// memory, nor the time to copy them; sent bytes do not count, so no connection is slower.
    /// Never blocks: names are not looked up, see [`ToSocketAddrs`].
    ///
    /// # Errors
    ///
    /// Those of the kernel for the last address tried, among them `AddrInUse`; `InvalidInput` for a
    /// text that is not an address; there is no runtime here.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, |addr| {
            if let Some(network) = environment::network_of(addr.ip()) {
                return Self::of(Listening::Network(network.listen(addr)?));
            }
            let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.set_tcp_nodelay(true)?;
            socket.bind(&addr.into())?;
            socket.listen(backlog_max())?;
            Self::from_std(socket.into())
        })
    }

    /// Takes a listening socket over, for options that [`TcpListener::bind`] does not have, and for
    /// sockets that a service manager passes on. If the socket already limits unsent bytes, that
    /// limit stays.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // Accepted streams inherit both, which saves system calls for each stream.
        let socket = SockRef::from(&listener);
        socket.set_tcp_nodelay(true)?;
        if socket.tcp_notsent_lowat()? == 0 {
            socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
        }
        Self::of(Listening::Kernel(listener))
    }

    fn of(socket: Listening) -> io::Result<Self> {
        Ok(TcpListener { source: Source::new(socket)?, shared: current::shared()? })
    }

    /// Accepts the next connection, and returns it with the address of the peer.
    ///
    /// A lack of descriptors is not an error here: accepting pauses until the program closes one,
    /// at most 100 ms at a time, with one line in the log. Connections that ended while they waited
    /// in the backlog are skipped. An error means that the listener can accept no more, so a loop
    /// may end on any error.
    ///
    /// Cancel safe: dropped before it resolves, it has accepted nothing. Several tasks may accept
    /// at once.
    ///
    /// # Errors
    ///
    /// Those of the listening socket, or that the runtime has shut down.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let accepted = self.source.io(Direction::Read, accept_one).await;
            match accepted.and_then(|(accepted, peer)| Ok((TcpStream::accepted(accepted)?, peer))) {
                Ok(accepted) => {
                    self.shared.descriptors.accepted();
                    return Ok(accepted);
                }
                Err(error) if is_shortage(&error) => {
                    self.shared.descriptors.refused(&error).await;
                }
                Err(error) if is_of_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// For connections accepted from now on: makes the kernel note when their packets reach this
    /// machine (`SO_TIMESTAMPNS`), for [`TcpStream::read_waited`]. While there is such a socket,
    /// the kernel reads a clock for each packet of the machine.
    ///
    /// # Errors
    ///
    /// The system does not support it.
    pub fn note_arrivals(&self) -> io::Result<()> {
        match self.source.descriptor() {
            Listening::Kernel(listener) => note_arrivals(listener),
            Listening::Network(_) => Ok(()),
        }
    }

    /// Makes the kernel drop the first packets of new connections from now on. Clients repeat them
    /// after a second, and then meet the next listener. The listener can still accept connections
    /// with a handshake under way; if it were dropped, they would be reset.
    ///
    /// This affects the socket, and so all other processes and listeners that have it: use it for
    /// the last listener, just before you drop it.
    ///
    /// # Errors
    ///
    /// The kernel refuses the filter.
    pub fn refuse_new(&self) -> io::Result<()> {
        // The filter gets the segment from its TCP header on; SYN is a bit in the byte of the
        // flags.
        const LOAD_BYTE: u16 = 0x30;
        const JUMP_IF_ANY_BIT: u16 = 0x45;
        const RETURN: u16 = 0x06;
        const FLAGS: u32 = 13;
        const SYN: u32 = 0x02;
        let socket = match self.source.descriptor() {
            Listening::Kernel(listener) => listener.as_fd(),
            Listening::Network(socket) => {
                socket.refuse_new();
                return Ok(());
            }
        };
        SockRef::from(&socket).attach_filter(&[
            SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
            SockFilter::new(JUMP_IF_ANY_BIT, 0, 1, SYN),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ])
    }

    /// The local address, with the port that the kernel chose.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.descriptor().local_addr()
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

fn accept_one(listener: &Listening) -> io::Result<Step<(Accepted, SocketAddr)>> {
    let listener = match listener {
        Listening::Kernel(listener) => listener,
        Listening::Network(socket) => {
            let (accepted, peer) = socket.accept()?;
            return Ok(Step::More((Accepted::Network(accepted), peer)));
        }
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok(Step::More((Accepted::Kernel(fd), peer)))
}

/// Whether the error concerns the connection that would have been accepted, and not the listener
/// (accept(2), "Error handling").
pub(crate) fn is_of_connection(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::ConnectionAborted
        || matches!(
            errno,
            Some(
                Errno::CONNABORTED
                    | Errno::CONNRESET
                    | Errno::PROTO
                    | Errno::PERM
                    | Errno::NETDOWN
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::TIMEDOUT
            )
        )
}

/// The most bytes of an accepted stream that may wait unsent in the kernel. With a lower limit the
/// writer is woken more often: it is woken when half of the bytes are sent.
const UNSENT_MAX: u32 = 128 << 10;

/// The longest backlog that the system allows. If the backlog is full, connection attempts are
/// dropped and clients repeat them after a second, so their latency is a second.
pub(crate) fn backlog_max() -> i32 {
    static BACKLOG_MAX: OnceLock<i32> = OnceLock::new();
    *BACKLOG_MAX.get_or_init(|| {
        // Not a file on a disk: reading it does not block.
        std::fs::read_to_string("/proc/sys/net/core/somaxconn")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(4096)
    })
}
