//! Pipes, within the process and to children.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::driver::Source;
use crate::environment;
use crate::stream::{PipeEnd, RawRead, RawWrite, as_uninit, raw_read, raw_write, read_methods, write_methods};

/// A pipe: bytes written to the sender come out of the receiver.
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (tx, rx) = dapple_io::pipe::pipe()?;
///     tx.write_all(b"hello").await?;
///     drop(tx);
///     let mut buf = [0; 16];
///     assert_eq!(rx.read(&mut buf).await?, 5);
///     assert_eq!(rx.read(&mut buf).await?, 0, "the end");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// No descriptor is left, or there is no runtime here.
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    environment::refuse("a pipe");
    let (receiver, sender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Sender { source: Source::new(PipeEnd(sender))? }, Receiver { source: Source::new(PipeEnd(receiver))? }))
}

/// The writing end. Writing to a pipe without readers fails with `BrokenPipe`.
pub struct Sender {
    source: Source<PipeEnd>,
}

/// The reading end.
pub struct Receiver {
    source: Source<PipeEnd>,
}

impl Sender {
    /// Takes over the writing end of a pipe or FIFO, such as a child's standard input.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel cannot watch this kind of file.
    pub fn from_fd(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let source = Source::new(nonblocking(fd.into())?)?;
        Ok(Sender { source })
    }

    write_methods!();

    /// As [`Sender::write_vectored`], for code that polls. Replaces wakers of other tasks that poll
    /// the same end.
    ///
    /// # Errors
    ///
    /// As [`Sender::write`].
    pub fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.raw_poll_write_vectored(cx, bufs)
    }
}

impl Receiver {
    /// Takes over the reading end of a pipe or FIFO, such as a child's standard output.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel cannot watch this kind of file.
    pub fn from_fd(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let source = Source::new(nonblocking(fd.into())?)?;
        Ok(Receiver { source })
    }

    /// A pipe with a child's output.
    pub(crate) fn of_child(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let receiver = Receiver::from_fd(fd)?;
        receiver.source.comes_from_outside();
        Ok(receiver)
    }

    /// Takes over a FIFO that was just opened, perhaps before its first writer. A read would take
    /// that for the end of the stream, so the first read waits until the kernel reports data.
    ///
    /// # Errors
    ///
    /// As [`Receiver::from_fd`].
    pub fn from_fifo(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let source = Source::connecting(nonblocking(fd.into())?)?;
        Ok(Receiver { source })
    }

    read_methods!();

    /// As [`Receiver::read`], for code that polls. Replaces wakers of other tasks that poll the
    /// same end.
    ///
    /// # Errors
    ///
    /// As [`Receiver::read`].
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.raw_poll_read(cx, as_uninit(buf))
    }
}

raw_read!(Receiver);
// A pipe has no call for this: if the sender is dropped, the stream ends.
raw_write!(Sender, |_| Ok(()));

fn nonblocking(fd: OwnedFd) -> io::Result<PipeEnd> {
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(PipeEnd(fd))
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
