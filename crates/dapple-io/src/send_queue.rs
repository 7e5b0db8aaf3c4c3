//! Gathered writes from a bounded queue.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};

use crate::stream::ByteStream;

/// A queue of segments that writes many in one system call (the papers' `suio`).
///
/// Segments are [`Bytes`]: pushing one copies nothing. The queue is bounded in bytes; at the bound,
/// [`push`](Self::push) refuses and returns the segment, so that the producer stops until the peer
/// has read.
///
/// ```
/// use dapple_io::SendQueue;
/// use dapple_io::net::UnixStream;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (a, b) = UnixStream::pair()?;
///     let mut queue = SendQueue::new(64 * 1024);
///     queue.push("hello, ").unwrap();
///     queue.push("world").unwrap();
///     queue.flush(&a).await?;
///     let mut buf = [0; 12];
///     b.read_exact(&mut buf).await?;
///     assert_eq!(&buf, b"hello, world");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct SendQueue {
    segments: VecDeque<Bytes>,
    len: usize,
    len_max: usize,
}

/// The queue has no room for this segment.
pub struct SendQueueFull(pub Bytes);

impl SendQueue {
    /// A queue of at most `len_max` bytes. It takes a single longer segment when it is empty.
    pub fn new(len_max: usize) -> Self {
        SendQueue { segments: VecDeque::new(), len: 0, len_max }
    }

    /// Number of queued bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a segment at the end.
    ///
    /// # Errors
    ///
    /// [`SendQueueFull`], with the segment, if there is no room: flush first.
    pub fn push(&mut self, segment: impl Into<Bytes>) -> Result<(), SendQueueFull> {
        let segment = segment.into();
        if segment.is_empty() {
            return Ok(());
        }
        if self.len > 0 && self.len.saturating_add(segment.len()) > self.len_max {
            return Err(SendQueueFull(segment));
        }
        self.len += segment.len();
        self.segments.push_back(segment);
        Ok(())
    }

    /// Writes everything. Cancel safe: written bytes have left the queue, the rest is still in it.
    ///
    /// # Errors
    ///
    /// Those of the stream; unwritten bytes stay.
    pub async fn flush<S: ByteStream>(&mut self, stream: &S) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx, stream)).await
    }

    /// Like [`flush`](Self::flush), for use in a `poll` function. Keeps the task's waker in the one
    /// place that the stream has for writers.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn poll_flush<S: ByteStream>(&mut self, cx: &mut Context<'_>, stream: &S) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let count = ready!(self.write_with(|bufs| stream.raw_poll_write_vectored(cx, bufs)))?;
            self.advance(count)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes as much as the socket takes; returns whether the queue is empty now. For callbacks:
    /// if it is not, continue in `on_writable`.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn try_flush<S: ByteStream>(&mut self, stream: &S) -> io::Result<bool> {
        while !self.is_empty() {
            match self.write_with(|bufs| stream.raw_try_write_vectored(bufs)) {
                Ok(count) => self.advance(count)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Lends the first segments to a write.
    fn write_with<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.segments.len().min(SLICES_MAX);
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            *slice = IoSlice::new(segment);
        }
        write(&slices[..count])
    }

    /// Removes written bytes from the queue.
    fn advance(&mut self, mut count: usize) -> io::Result<()> {
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.len -= count;
        while count > 0 {
            let first = self.segments.front_mut().expect("holds the written bytes");
            let part = count.min(first.len());
            first.advance(part);
            count -= part;
            if first.is_empty() {
                self.segments.pop_front();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("len", &self.len)
            .field("len_max", &self.len_max)
            .field("segments", &self.segments.len())
            .finish()
    }
}

impl fmt::Debug for SendQueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendQueueFull({} bytes)", self.0.len())
    }
}

impl fmt::Display for SendQueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the send queue has no room for {} bytes", self.0.len())
    }
}

impl Error for SendQueueFull {}

/// Segments in one call. More would cost stack and hardly save calls.
const SLICES_MAX: usize = 64;
