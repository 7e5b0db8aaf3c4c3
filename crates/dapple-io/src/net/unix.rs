//! Sockets of the local machine, with a path as their name.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net as std_unix;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, Socket, Type};

use super::half::{ReadHalf, WriteHalf};
use super::listener::{backlog_max, is_of_connection};
use crate::descriptors::is_shortage;
use crate::driver::{Direction, Shared, Source, Step, current};
use crate::environment;
use crate::stream::{raw_read, raw_write, read_methods, write_methods};
use crate::time::sleep;

/// Accepts connections from the local machine. The path stays after the drop: its creator removes
/// it.
pub struct UnixListener {
    source: Source<std_unix::UnixListener>,
    shared: Arc<Shared>,
}

impl UnixListener {
    /// Listens on a path that must not exist yet.
    ///
    /// # Errors
    ///
    /// Those of the kernel, among them `AddrInUse` when the path exists; there is no runtime here.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        environment::refuse(UNIX_SOCKET);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(backlog_max())?;
        Self::from_std(OwnedFd::from(socket).into())
    }

    /// Takes a listener over from the standard library.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn from_std(listener: std_unix::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(UnixListener { source: Source::new(listener)?, shared: current::shared()? })
    }

    /// Accepts the next connection. A lack of descriptors pauses it as in
    /// [`TcpListener::accept`](super::TcpListener::accept). Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of the listening socket, or that the runtime has shut down.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let accepted = self.source.io(Direction::Read, accept_one).await;
            match accepted.and_then(|fd| UnixStream::accepted(fd.into())) {
                Ok(stream) => {
                    self.shared.descriptors.accepted();
                    return Ok(stream);
                }
                Err(error) if is_shortage(&error) => {
                    self.shared.descriptors.refused(&error).await;
                }
                Err(error) if is_of_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A connection to a process on the same machine. The notes at [`TcpStream`](super::TcpStream)
/// about sharing and traits apply.
pub struct UnixStream {
    source: Source<std_unix::UnixStream>,
}

impl UnixStream {
    /// Connects to a path. If the listener's backlog is full, the kernel refuses at once, and this
    /// tries again every 10 ms. Cancel safe.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ConnectionRefused`, `PermissionDenied` and similar errors; there is no runtime
    /// here.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        environment::refuse(UNIX_SOCKET);
        let addr = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        while let Err(error) = socket.connect(&addr) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            sleep(BACKLOG_PAUSE).await;
        }
        Self::nonblocking(OwnedFd::from(socket).into())
    }

    /// Two connected streams.
    ///
    /// # Errors
    ///
    /// No descriptor is left, or there is no runtime here.
    pub fn pair() -> io::Result<(Self, Self)> {
        environment::refuse(UNIX_SOCKET);
        let (a, b) = std_unix::UnixStream::pair()?;
        Ok((Self::from_std(a)?, Self::from_std(b)?))
    }

    /// Takes a stream over from the standard library.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn from_std(stream: std_unix::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::nonblocking(stream)
    }

    /// A connection that the kernel made non-blocking.
    fn accepted(stream: std_unix::UnixStream) -> io::Result<Self> {
        Ok(UnixStream { source: Source::unwatched(stream)? })
    }

    fn nonblocking(stream: std_unix::UnixStream) -> io::Result<Self> {
        let source = Source::new(stream)?;
        Ok(UnixStream { source })
    }

    read_methods!();
    write_methods!();

    /// Ends one or both directions; a connection that has already ended is not an error.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; none are known.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.source.descriptor().shutdown(how) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Two halves, which different tasks can own. Dropping the writing half ends that direction.
    pub fn into_split(self) -> (ReadHalf<UnixStream>, WriteHalf<UnixStream>) {
        let stream = Arc::new(self);
        (ReadHalf::new(stream.clone()), WriteHalf::new(stream))
    }
}

raw_read!(UnixStream);
raw_write!(UnixStream, |stream| stream.shutdown(Shutdown::Write));

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

fn accept_one(listener: &std_unix::UnixListener) -> io::Result<Step<OwnedFd>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(Step::More(rustix::net::accept_with(listener, flags)?))
}

/// The name in the refusal of a simulation.
const UNIX_SOCKET: &str = "a Unix socket";

/// The pause between two attempts to connect to a listener with a full backlog.
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);
