//! A file that is read at requested offsets (Gribble's disk source).

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_sched::foreign::KeptWaker;
use dapple_sched::{Color, Handle};
use dapple_sync::sync::limit::Turn;

use super::completion::{Completed, Completion, Pending};
use super::gate::Gate;
use super::queue::PopError;
use crate::lock::Mutex;
use crate::shut_down_error;
use dapple_io::fs::File;

/// Reads a file at offsets. Requests go to the disk together and **complete in the disk's order**;
/// each has its own [`Completion`] (Gribble, section 5.1.1).
///
/// At most 128 requests are at the disk, or completed and not yet handled; see
/// [`set_requests_max`](Self::set_requests_max). Clones share the file and the limit.
///
/// ```
/// use dapple_flow::flow::{BlockSource, Queue};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let path = std::env::temp_dir().join(format!("dapple-io-blocks-{}", std::process::id()));
///     std::fs::write(&path, "0123456789")?;
///     let blocks = BlockSource::open(&path).await?;
///     assert_eq!(blocks.read(4, 2).await?, "45");
///     let done = Queue::new(8);
///     for offset in [0, 3, 6, 9] {
///         blocks.submit(offset, 3, &done).await?;
///     }
///     for _ in 0..4 {
///         let block = done.pop().await.expect("the file is open");
///         let expected = &b"0123456789"[block.offset as usize..];
///         assert_eq!(block.result?, &expected[..3.min(expected.len())]);
///     }
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct BlockSource(Arc<Inner>);

struct Inner {
    file: File,
    gate: Mutex<Gate>,
    handle: Handle,
}

/// The result of a read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Block {
    /// The requested offset.
    pub offset: u64,
    /// The requested number of bytes.
    pub len: usize,
    /// The bytes; fewer than requested only at the end of the file, none after it.
    pub result: io::Result<Bytes>,
}

impl Completed for Block {
    fn failed(error: io::Error) -> Self {
        Block { offset: 0, len: 0, result: Err(error) }
    }
}

impl BlockSource {
    /// Opens a file.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves no file open.
    ///
    /// # Errors
    ///
    /// As [`File::open`].
    pub async fn open(path: impl AsRef<std::path::Path>) -> io::Result<BlockSource> {
        Ok(Self::new(File::open(path).await?))
    }

    /// Reads an open file, which may be one with `O_DIRECT`.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn new(file: File) -> BlockSource {
        let gate = Mutex::new(Gate::new(REQUESTS_MAX, usize::MAX));
        BlockSource(Arc::new(Inner { file, gate, handle: Handle::current() }))
    }

    /// At most this many requests are accepted at a time. Default: 128.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn set_requests_max(&self, requests_max: usize) {
        assert!(requests_max > 0, "a source that accepts no request yields nothing");
        let after = self.0.gate.lock().set_max(requests_max, usize::MAX);
        after.run();
    }

    /// Requests at the disk, and completed requests that are not yet handled.
    pub fn requests(&self) -> usize {
        self.0.gate.lock().count()
    }

    /// Reads up to `len` bytes (at most 64 MiB) from `offset`, and waits for them. Returns fewer
    /// only at the end of the file.
    ///
    /// Cancel safe: the data can be read again.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `len` is too large, otherwise as [`File::read_at`].
    pub async fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let (completion, pending): (_, Pending<Block>) = Completion::answer();
        self.submit(offset, len, completion).await?;
        pending.await.result
    }

    /// Requests up to `len` bytes (at most 64 MiB) from `offset`; waits only until the request is
    /// accepted. `to` gets the result.
    ///
    /// Cancel safe: if dropped before it resolves, nothing was accepted.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `len` is too large, `BrokenPipe` if the queue for the completion is
    /// closed; then `to` gets nothing.
    pub async fn submit(&self, offset: u64, len: usize, to: impl Into<Completion<Block>>) -> io::Result<()> {
        let mut to = to.into();
        check(len)?;
        poll_fn(|cx| to.poll_reserve(cx)).await.map_err(|_| completions_closed())?;
        let mut waiting = Waiting { source: &self.0, turn: Turn::default() };
        poll_fn(|cx| waiting.poll(cx)).await;
        self.start(Request { offset, len, to: Some(to), counted: Some(Counted(self.0.clone())) });
        Ok(())
    }

    /// As [`submit`](Self::submit), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the limit of requests is reached, or the queue for the completion is full;
    /// otherwise as [`submit`](Self::submit).
    pub fn try_submit(&self, offset: u64, len: usize, to: impl Into<Completion<Block>>) -> io::Result<()> {
        let mut to = to.into();
        check(len)?;
        to.try_reserve().map_err(|error| match error {
            PopError::Closed => completions_closed(),
            _ => io::Error::new(io::ErrorKind::WouldBlock, "the queue for the completion is full"),
        })?;
        if !self.0.gate.lock().try_take() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the limit of reads in flight is reached"));
        }
        self.start(Request { offset, len, to: Some(to), counted: Some(Counted(self.0.clone())) });
        Ok(())
    }

    fn start(&self, mut request: Request) {
        let file = self.0.file.clone();
        let color: Color = self.0.handle.new_color();
        // Detached: it ends with the read. If the runtime has shut down, it is dropped, and its
        // drop reports that.
        drop(color.spawn(async move {
            let result = read_full(&file, request.offset, request.len).await;
            request.complete(result);
        }));
    }
}

/// One read, which reports its end even if it is dropped.
struct Request {
    offset: u64,
    len: usize,
    /// `None` after the report.
    to: Option<Completion<Block>>,
    counted: Option<Counted>,
}

impl Request {
    fn complete(&mut self, result: io::Result<Bytes>) {
        if let Some(to) = self.to.take() {
            let block = Block { offset: self.offset, len: self.len, result };
            to.deliver(block, self.counted.take());
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.complete(Err(shut_down_error()));
    }
}

/// Releases a request's count on drop.
struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        let after = self.0.gate.lock().give_back(1, 0);
        after.run();
    }
}

struct Waiting<'a> {
    source: &'a Inner,
    turn: Turn,
}

impl Waiting<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let waker = KeptWaker::from(cx.waker());
        let (poll, after) = self.source.gate.lock().poll_take(&mut self.turn, waker);
        after.run();
        // The gate is never closed.
        poll.map(|_| ())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            let after = self.source.gate.lock().leave(&mut self.turn);
            after.run();
        }
    }
}

/// A read returns short if only a part of it is in the kernel's cache.
async fn read_full(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut read = file.read_at(offset, len).await?;
    while !read.is_empty() && read.len() < len && !file.is_direct() {
        let more = file.read_at(offset.saturating_add(read.len() as u64), len - read.len()).await?;
        if more.is_empty() {
            break;
        }
        read.extend_from_slice(&more);
    }
    Ok(read.into())
}

fn check(len: usize) -> io::Result<()> {
    if len > LEN_MAX {
        let text = format!("{len} bytes exceed the limit of {LEN_MAX} for one read: read in parts");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

fn completions_closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the queue for the completion is closed")
}

impl fmt::Debug for BlockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockSource").field("file", &self.0.file).field("requests", &self.requests()).finish()
    }
}

/// The default limit of accepted requests.
const REQUESTS_MAX: usize = 128;

/// The limit of one request in bytes.
const LEN_MAX: usize = 64 * 1024 * 1024;
