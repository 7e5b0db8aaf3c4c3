//! The common part of sockets and pipes: bytes in order, read and written as far as the kernel
//! allows.

use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::driver::{Descriptor, Direction, Source, Step};
use crate::net::{TcpStream, UnixStream};

/// A byte stream of this crate that can be written without waiting: TCP, Unix and the sending end
/// of a pipe.
///
/// For helpers such as [`SendQueue`](crate::SendQueue) that work on all of them. Other crates
/// cannot implement it.
pub trait ByteStream: RawWrite {}

impl<S: RawWrite> ByteStream for S {}

/// A connection: a byte stream in both directions. TCP, Unix sockets and TLS implement it; others
/// can be implemented elsewhere, in memory or in user space, and layers such as TLS and HTTP
/// servers take any of them.
///
/// All methods take `&self`, so that one task can read while another writes. A connection keeps one
/// waker per direction, as the I/O traits of other crates do: of several tasks that poll the same
/// direction only the last is woken.
///
/// ```
/// use std::io;
/// use std::task::{Context, Poll};
/// use dapple_io::Connection;
///
/// /// Ends at once, and takes whatever is written.
/// struct Sink;
///
/// impl Connection for Sink {
///     fn poll_read(&self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
///         Poll::Ready(Ok(0))
///     }
///
///     fn poll_write(&self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
///         Poll::Ready(Ok(buf.len()))
///     }
///
///     fn poll_end(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
///         Poll::Ready(Ok(()))
///     }
/// }
/// ```
pub trait Connection: Send + Sync + 'static {
    /// Reads at least one byte and up to `buf.len()`; 0 means that the peer has ended the stream.
    ///
    /// # Errors
    ///
    /// The connection is broken, and of no more use.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes a part of the buffer, and returns its length; never 0 if the buffer is not empty.
    ///
    /// # Errors
    ///
    /// The peer has ended, or the writing direction has been closed.
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;

    /// As [`poll_write`](Self::poll_write), for a part of several buffers. By default writes from
    /// the first that is not empty.
    ///
    /// # Errors
    ///
    /// As `poll_write`.
    fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.poll_write(cx, first.map_or(&[][..], |buf| buf))
    }

    /// Waits until written bytes have left this connection's own memory, if it has any.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write).
    fn poll_flush(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the writing direction: tells the peer that no more bytes will come. Another call
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write).
    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Announces, just before the drop, that the connection ends here as planned; does only what is
    /// possible without waiting. TLS has a message for it. By default does nothing, for connections
    /// that announce it by being dropped.
    fn say_end(&self, _cx: &mut Context<'_>) {}

    /// From now on, if the connection is dropped, the peer cannot take that for the end of the
    /// stream: TCP resets the connection. By default does nothing, for connections that cannot do
    /// this.
    fn abort(&self) {}

    /// Ends the writing direction together with these bytes, if both are possible in one step;
    /// otherwise writes nothing and returns 0. By default returns 0.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write), without waiting: for `WouldBlock` it returns 0, too.
    fn try_finish(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// Tells the connection whether [`read_waited`](Self::read_waited) will be called.
    fn note_arrivals(&self, _is_wanted: bool) {}

    /// How long the last bytes read had waited; zero if unknown.
    fn read_waited(&self) -> Duration {
        Duration::ZERO
    }
}

macro_rules! implement_connection {
    ($type:ty { $($own:tt)* }) => {
        impl Connection for $type {
            fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                self.raw_poll_read(cx, as_uninit(buf))
            }

            fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.raw_poll_write(cx, buf)
            }

            fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
                self.raw_poll_write_vectored(cx, bufs)
            }

            fn poll_end(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.raw_close())
            }

            $($own)*
        }
    };
}

implement_connection!(TcpStream {
    fn abort(&self) {
        TcpStream::abort(self);
    }

    fn try_finish(&self, bytes: &[u8]) -> io::Result<usize> {
        match TcpStream::try_finish(self, bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    fn note_arrivals(&self, is_wanted: bool) {
        TcpStream::note_arrivals(self, is_wanted);
    }

    fn read_waited(&self) -> Duration {
        TcpStream::read_waited(self).unwrap_or_default()
    }
});
implement_connection!(UnixStream {});

/// Views initialized memory as memory that may be uninitialized.
pub(crate) fn as_uninit(buf: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the layouts are the same, and the only callee, `RawRead::raw_poll_read`, writes only
    // bytes that the kernel has read, so the caller's bytes stay initialized.
    unsafe { &mut *(std::ptr::from_mut(buf) as *mut [MaybeUninit<u8>]) }
}

/// The reading side, for the I/O traits of other crates.
pub trait RawRead {
    /// Reads into memory that need not be initialized; returns the number of bytes.
    fn raw_poll_read(&self, cx: &mut Context<'_>, buf: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>>;
}

/// The writing side, for the I/O traits of other crates.
pub trait RawWrite {
    /// Writes a part of the buffer.
    fn raw_poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;

    /// Writes a part of the buffers.
    fn raw_poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Writes a part of the buffers now, or returns that it would block.
    fn raw_try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Tells the peer that no more bytes will come, if the kernel has a call for that.
    fn raw_close(&self) -> io::Result<()>;
}

/// The calls that move bytes into and out of a descriptor.
pub(crate) trait Transfer: Descriptor {
    fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.as_fd(), buf)?)
    }

    /// Says how many bytes at the beginning of the memory are initialized now.
    fn receive_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        Ok(rustix::io::read(self.as_fd(), buf)?.0.len())
    }

    fn send(&self, buf: &[u8]) -> io::Result<usize>;
    fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// An end of a pipe.
#[derive(Debug)]
pub(crate) struct PipeEnd(pub(crate) OwnedFd);

impl AsFd for PipeEnd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Descriptor for PipeEnd {}

impl Transfer for PipeEnd {
    fn send(&self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, buf)?)
    }

    fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self, bounded(bufs))?)
    }
}

impl Transfer for std::os::unix::net::UnixStream {
    fn send(&self, buf: &[u8]) -> io::Result<usize> {
        send(self, buf)
    }

    fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        send_vectored(self, bufs)
    }
}

/// If the peer has ended, there is no signal (`SIGPIPE`): the error says so.
pub(crate) fn send(socket: impl AsFd, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, buf, SendFlags::NOSIGNAL)?)
}

pub(crate) fn send_vectored(socket: impl AsFd, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    let flags = SendFlags::NOSIGNAL;
    Ok(rustix::net::sendmsg(socket, bounded(bufs), &mut control, flags)?)
}

/// As many buffers as the kernel takes in one call.
fn bounded<'a, 'b>(bufs: &'a [IoSlice<'b>]) -> &'a [IoSlice<'b>] {
    &bufs[..bufs.len().min(SLICES_MAX)]
}

/// If a transfer was short, it has emptied or filled the kernel's buffer.
pub(crate) fn step(transferred: usize, asked: usize) -> Step<usize> {
    if 0 < transferred && transferred < asked { Step::Drained(transferred) } else { Step::More(transferred) }
}

fn total(bufs: &[IoSlice<'_>]) -> usize {
    bounded(bufs).iter().map(|buf| buf.len()).sum()
}

impl<T: Transfer> Source<T> {
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Direction::Read, None, |fd| {
            let filled = fd.receive_uninit(buf)?;
            Ok(step(filled, buf.len()))
        })
    }

    pub(crate) fn read<'a>(&'a self, buf: &'a mut [u8]) -> impl Future<Output = io::Result<usize>> + 'a {
        self.io(Direction::Read, move |fd| Ok(step(fd.receive(buf)?, buf.len())))
    }

    pub(crate) async fn read_exact(&self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let count = self.read(buf).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[count..];
        }
        Ok(())
    }

    pub(crate) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_io(Direction::Read, |fd| Ok(step(fd.receive(buf)?, buf.len())))
    }
}

impl<T: Transfer> Source<T> {
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Direction::Write, None, |fd| Ok(step(fd.send(buf)?, buf.len())))
    }

    pub(crate) fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Direction::Write, None, |fd| Ok(step(fd.send_vectored(bufs)?, total(bufs))))
    }

    pub(crate) fn write<'a>(&'a self, buf: &'a [u8]) -> impl Future<Output = io::Result<usize>> + 'a {
        self.io(Direction::Write, move |fd| Ok(step(fd.send(buf)?, buf.len())))
    }

    pub(crate) fn write_vectored<'a>(
        &'a self,
        bufs: &'a [IoSlice<'a>],
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        self.io(Direction::Write, move |fd| Ok(step(fd.send_vectored(bufs)?, total(bufs))))
    }

    pub(crate) async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let count = self.write(buf).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buf = &buf[count..];
        }
        Ok(())
    }

    pub(crate) fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.try_io(Direction::Write, |fd| Ok(step(fd.send(buf)?, buf.len())))
    }

    pub(crate) fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_io(Direction::Write, |fd| Ok(step(fd.send_vectored(bufs)?, total(bufs))))
    }
}

/// The methods for reading of every type with a `source` field.
macro_rules! read_methods {
    () => {
        /// Reads up to `buf.len()` bytes as soon as there are any; 0 means that the peer has ended
        /// the stream.
        ///
        /// Any number of tasks may read at once; their order is undefined. Cancel safe: dropped
        /// before it resolves, it has read nothing.
        ///
        /// # Errors
        ///
        /// Those of the connection, or that the runtime has shut down.
        pub fn read<'a>(
            &'a self,
            buf: &'a mut [u8],
        ) -> impl std::future::Future<Output = std::io::Result<usize>> + Send + 'a {
            self.source.read(buf)
        }

        /// Fills the buffer. Not cancel safe: bytes read until then are lost with the future.
        ///
        /// # Errors
        ///
        /// `UnexpectedEof` if the stream ends first, and those of `read`.
        pub fn read_exact<'a>(
            &'a self,
            buf: &'a mut [u8],
        ) -> impl std::future::Future<Output = std::io::Result<()>> + Send + 'a {
            self.source.read_exact(buf)
        }

        /// Reads bytes that have arrived.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if there are none; otherwise those of `read`.
        pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.source.try_read(buf)
        }

        /// Waits until a read may succeed. The read may still return `WouldBlock`. Cancel safe.
        ///
        /// # Errors
        ///
        /// The runtime has shut down.
        pub fn readable(&self) -> impl std::future::Future<Output = std::io::Result<()>> + Send + '_ {
            self.source.ready(crate::driver::Direction::Read)
        }

        /// Calls the callback when a read may succeed, and again after each run while it may.
        ///
        /// Read with `try_read` in it, which detects that everything has been read. The
        /// registration ends with this stream, with the
        /// [`Registration`](crate::event::Registration), and with the runtime.
        pub fn on_readable(&self, callback: dapple_sched::Callback<()>) -> crate::event::Registration {
            crate::event::watch(&self.source, crate::driver::Direction::Read, callback)
        }
    };
}
pub(crate) use read_methods;

/// The methods for writing of every type with a `source` field.
macro_rules! write_methods {
    () => {
        /// Writes a part of the buffer as soon as there is any room. Cancel safe: dropped before it
        /// resolves, it has written nothing.
        ///
        /// # Errors
        ///
        /// Those of the connection, such as `BrokenPipe`, or that the runtime has shut down.
        pub fn write<'a>(
            &'a self,
            buf: &'a [u8],
        ) -> impl std::future::Future<Output = std::io::Result<usize>> + Send + 'a {
            self.source.write(buf)
        }

        /// Writes a part of the buffers, in order, in one system call. Cancel safe as `write`.
        ///
        /// # Errors
        ///
        /// As `write`.
        pub fn write_vectored<'a>(
            &'a self,
            bufs: &'a [std::io::IoSlice<'a>],
        ) -> impl std::future::Future<Output = std::io::Result<usize>> + Send + 'a {
            self.source.write_vectored(bufs)
        }

        /// Writes the whole buffer. Not cancel safe: the number of bytes written is lost with the
        /// future.
        ///
        /// # Errors
        ///
        /// As `write`.
        pub fn write_all<'a>(
            &'a self,
            buf: &'a [u8],
        ) -> impl std::future::Future<Output = std::io::Result<()>> + Send + 'a {
            self.source.write_all(buf)
        }

        /// Writes as much as there is room for.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if there is none; otherwise those of `write`.
        pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
            self.source.try_write(buf)
        }

        /// Writes as much as there is room for, from several buffers.
        ///
        /// # Errors
        ///
        /// As `try_write`.
        pub fn try_write_vectored(&self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
            self.source.try_write_vectored(bufs)
        }

        /// Waits until a write may succeed. The write may still return `WouldBlock`. Cancel safe.
        ///
        /// # Errors
        ///
        /// The runtime has shut down.
        pub fn writable(&self) -> impl std::future::Future<Output = std::io::Result<()>> + Send + '_ {
            self.source.ready(crate::driver::Direction::Write)
        }

        /// Calls the callback when a write may succeed, and again after each run while it may:
        /// cancel the registration when the program has no more to write. Write with `try_write` in
        /// it. Ends as `on_readable` does.
        pub fn on_writable(&self, callback: dapple_sched::Callback<()>) -> crate::event::Registration {
            crate::event::watch(&self.source, crate::driver::Direction::Write, callback)
        }
    };
}
pub(crate) use write_methods;

/// `RawRead` for a type with a `source` field.
macro_rules! raw_read {
    ($type:ty) => {
        impl crate::stream::RawRead for $type {
            fn raw_poll_read(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.source.poll_read(cx, buf)
            }
        }
    };
}
pub(crate) use raw_read;

/// `RawWrite` for a type with a `source` field, and its way to end the stream.
macro_rules! raw_write {
    ($type:ty, $close:expr) => {
        impl crate::stream::RawWrite for $type {
            fn raw_poll_write(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.source.poll_write(cx, buf)
            }

            fn raw_poll_write_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.source.poll_write_vectored(cx, bufs)
            }

            fn raw_try_write_vectored(&self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.source.try_write_vectored(bufs)
            }

            fn raw_close(&self) -> std::io::Result<()> {
                let close: fn(&Self) -> std::io::Result<()> = $close;
                close(self)
            }
        }
    };
}
pub(crate) use raw_write;

/// `IOV_MAX` of Linux.
const SLICES_MAX: usize = 1024;
