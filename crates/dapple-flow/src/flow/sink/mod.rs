//! Sinks: destinations of items (Gribble, section 5.1).

mod core;
mod drain;
mod error;
mod handle;
mod room;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use dapple_sched::Handle;

use self::core::{Core, Job, NoRoom};
use super::codec::{Chunks, Encode};
use super::completion::{Completed, Completion, Pending};
use super::device::{Device, Writer};
use super::queue::PopError;
pub use error::SubmitError;
use room::Room;

/// Takes items, and writes them in that order, in the background.
///
/// A write has two phases: it is *accepted*, and it is *completed*. Each write can name a recipient
/// of the second; see [`Completion`]. [`write`](Self::write) awaits both, [`submit`](Self::submit)
/// the first, [`try_submit`](Self::try_submit) neither. The waiting requests are bounded in number
/// and bytes, see [`set_limits`](Self::set_limits).
///
/// When a write fails, it and all later ones complete with the error, and no more are accepted:
/// data after a gap would be out of order.
///
/// A `Sink` is a handle; clones share the device, and any number of tasks, callbacks and plain
/// threads may use it. After the drop of the last one, all accepted items are still written, and
/// then the device is closed. It also implements `futures_sink::Sink`.
///
/// `D` is the device: [`Tcp`](super::Tcp), [`Unix`](super::Unix), [`Pipe`](super::Pipe),
/// [`Disk`](super::Disk), [`Append`](super::Append), your own, or [`Any`](super::Any), which takes
/// the kind from the name. `C` encodes items as bytes.
///
/// ```
/// use std::time::Duration;
/// use dapple_flow::flow::{self, Any, Queue, Sink};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let path = std::env::temp_dir().join(format!("dapple-io-sink-{}", std::process::id()));
///     // From a configuration.
///     let name = format!("file:{}", path.display());
///     let sink = Sink::<Any>::open(&name).await?;
///     assert_eq!(sink.write("hello, ").await?, 7);
///     let done = Queue::new(16);
///     sink.submit("wor", &done).await?;
///     sink.submit("ld", &done).await?;
///     sink.sync().await?;
///     assert_eq!(done.pop_many(16).await.len(), 2);
///     assert_eq!(std::fs::read_to_string(&path)?, "hello, world");
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Sink<D: Device, C: Encode = Chunks> {
    /// The device, and room that this handle took while it was polled.
    room: Room<D::Writer>,
    codec: C,
    /// The awaited step while it is polled as a `futures_sink::Sink`.
    finishing: Option<(Finish, Pending<Written>)>,
}

/// The steps that a handle awaits.
enum Finish {
    Flush,
    Close,
}

/// The result of a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Written {
    /// Bytes that the device took: the whole item, or those before the failure.
    pub count: usize,
    /// The error, if there is one.
    pub result: io::Result<()>,
}

impl Written {
    /// The bytes that were written, or the error.
    ///
    /// # Errors
    ///
    /// That of the device.
    pub fn into_result(self) -> io::Result<usize> {
        self.result.map(|()| self.count)
    }
}

impl Completed for Written {
    fn failed(error: io::Error) -> Self {
        Written { count: 0, result: Err(error) }
    }
}

impl<D: Device> Sink<D> {
    /// Opens a device for writing. For devices with two directions see [`connect`](super::connect).
    ///
    /// Cancel safe: if dropped before it resolves, nothing is open; a file may have been created or
    /// truncated.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, with an example; errors of the device.
    pub async fn open(name: &str) -> io::Result<Self> {
        Ok(Self::new(D::open_writer(name).await?))
    }

    /// A sink of an open device.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn new(writer: D::Writer) -> Self {
        let color = Handle::current().new_color();
        Self::handle(Core::new(writer, color, REQUESTS_MAX, BYTES_MAX), Chunks)
    }

    /// A handle that encodes items in this way.
    pub fn encode<C: Encode>(self, codec: C) -> Sink<D, C> {
        self.core().add_handle();
        Sink::handle(self.core().clone(), codec)
    }
}

impl<D: Device, C: Encode> Sink<D, C> {
    fn handle(core: Arc<Core<D::Writer>>, codec: C) -> Self {
        Sink { room: Room::new(core), codec, finishing: None }
    }

    fn core(&self) -> &Arc<Core<D::Writer>> {
        self.room.core()
    }

    /// A separate one, because several futures of one handle may wait at the same time.
    fn new_room(&self) -> Room<D::Writer> {
        Room::new(self.core().clone())
    }

    /// At most this many requests wait, and no more are accepted while this many bytes wait.
    /// Defaults: 1,024 and 1 MiB.
    ///
    /// If an item is longer than that, it is accepted whenever fewer bytes wait; so the waiting
    /// bytes may exceed the limit by the longest item.
    ///
    /// # Panics
    ///
    /// If one of them is 0.
    pub fn set_limits(&self, requests_max: usize, bytes_max: usize) {
        assert!(requests_max > 0 && bytes_max > 0, "a sink with limits of 0 accepts nothing");
        self.core().set_max(requests_max, bytes_max);
    }

    /// Requests that wait to be written, or have a completion that waits to be handled.
    pub fn requests(&self) -> usize {
        self.core().load().0
    }

    /// Bytes that wait to be written.
    pub fn bytes(&self) -> usize {
        self.core().load().1
    }

    /// Whether it accepts no more: it was closed, or the device failed.
    pub fn is_closed(&self) -> bool {
        self.core().is_closed()
    }

    /// Writes an item, and waits until the device has it; returns its bytes. Waits for room first.
    ///
    /// Cancel safe: an item is written whole or not at all. If dropped while it waits for room, the
    /// item is not written; if dropped later, it is.
    ///
    /// # Errors
    ///
    /// Errors of the device, and of an earlier write; `BrokenPipe` if the sink is closed; errors of
    /// the codec.
    pub async fn write(&self, item: impl Into<C::Item>) -> io::Result<usize> {
        let (completion, pending) = Completion::answer();
        self.submit_completion(item.into(), completion).await?;
        pending.await.into_result()
    }

    /// Waits for room and accepts an item: the first phase of a write. `to` gets the result of the
    /// second, see [`Completion`].
    ///
    /// Cancel safe: if dropped before it resolves, nothing was accepted, and the item is dropped.
    ///
    /// # Errors
    ///
    /// [`SubmitError`], with the item, if it was not accepted; then `to` gets nothing.
    pub async fn submit(
        &self,
        item: impl Into<C::Item>,
        to: impl Into<Completion<Written>>,
    ) -> Result<(), SubmitError<C::Item>> {
        self.submit_completion(item.into(), to.into()).await
    }

    async fn submit_completion(&self, item: C::Item, mut to: Completion<Written>) -> Result<(), SubmitError<C::Item>> {
        // Reserve the completion's place first: while a request waits for that place, it must not
        // hold room here that others need.
        if poll_fn(|cx| to.poll_reserve(cx)).await.is_err() {
            return Err(SubmitError::CompletionsClosed(item));
        }
        let mut room = self.new_room();
        match poll_fn(|cx| room.poll_one(cx)).await {
            Ok(()) => accept(&self.codec, &mut room, item, to),
            Err(reason) => Err(SubmitError::new(reason, item)),
        }
    }

    /// Accepts an item if there is room now. For callbacks and other code that cannot wait.
    ///
    /// # Errors
    ///
    /// [`SubmitError`], with the item, if it was not accepted; then `to` gets nothing.
    ///
    /// ```
    /// use dapple_flow::flow::{self, SubmitError};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let (sink, _source) = flow::pipe()?;
    ///     sink.set_limits(1, 100_000);
    ///     sink.try_submit(vec![0; 1_000_000], ())?; // more than a pipe holds, without a reader
    ///     let refused = sink.try_submit("the next", ());
    ///     assert!(matches!(refused, Err(SubmitError::Full(item)) if item == "the next"));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_submit(
        &self,
        item: impl Into<C::Item>,
        to: impl Into<Completion<Written>>,
    ) -> Result<(), SubmitError<C::Item>> {
        let (item, mut to) = (item.into(), to.into());
        match to.try_reserve() {
            Ok(()) => {}
            Err(PopError::Closed) => return Err(SubmitError::CompletionsClosed(item)),
            Err(_) => return Err(SubmitError::CompletionsFull(item)),
        }
        let mut room = self.new_room();
        match room.try_take() {
            Ok(()) => accept(&self.codec, &mut room, item, to),
            Err(reason) => Err(SubmitError::new(reason, item)),
        }
    }

    /// Accepts an item if there is room now; its completion is a future.
    ///
    /// # Errors
    ///
    /// As [`try_submit`](Self::try_submit).
    pub fn try_write(&self, item: impl Into<C::Item>) -> Result<Pending<Written>, SubmitError<C::Item>> {
        let (completion, pending) = Completion::answer();
        self.try_submit(item, completion)?;
        Ok(pending)
    }

    /// Accepts an item if there is room now, otherwise drops it; returns whether it was accepted.
    /// For data that is useless later.
    pub fn submit_lossy(&self, item: impl Into<C::Item>) -> bool {
        self.try_submit(item, ()).is_ok()
    }

    /// Accepts all items, in order, waiting for room as necessary, and returns their number; calls
    /// `to` for the completion of each. Others may add theirs in between.
    ///
    /// Not cancel safe: the items not yet accepted are dropped with the future.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit), with the item that was not accepted; those after it are
    /// dropped.
    pub async fn submit_many<I: Into<C::Item>, P: Into<Completion<Written>>>(
        &self,
        items: impl IntoIterator<Item = I>,
        mut to: impl FnMut() -> P,
    ) -> Result<usize, SubmitError<C::Item>> {
        let mut count = 0;
        for item in items {
            self.submit(item, to()).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Waits until everything accepted before is written. Waits for room like a write.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub async fn flush(&self) -> io::Result<()> {
        self.barrier(Job::Flush).await
    }

    /// Waits until everything accepted before would survive a power failure, if the device is a
    /// file; otherwise as [`flush`](Self::flush). Cancel safe.
    ///
    /// # Errors
    ///
    /// Those of the device. After an error the sink accepts no more.
    pub async fn sync(&self) -> io::Result<()> {
        self.barrier(Job::Sync).await
    }

    async fn barrier(&self, job: Job) -> io::Result<()> {
        let (completion, pending) = Completion::answer();
        let mut room = self.new_room();
        poll_fn(|cx| room.poll_one(cx)).await.map_err(|reason| reason.error())?;
        room.accept(job, completion);
        pending.await.result
    }

    /// Accepts no more items from any handle, writes the accepted ones, closes the device, and
    /// waits for that. Succeeds if it is already closed.
    ///
    /// Cancel safe: the sink closes even if the future is dropped.
    ///
    /// # Errors
    ///
    /// Those of the device, also of earlier writes.
    pub async fn close(&self) -> io::Result<()> {
        let (completion, pending) = Completion::answer();
        self.core().close(completion);
        pending.await.result
    }
}

impl<D: Device, C: Encode> Clone for Sink<D, C> {
    fn clone(&self) -> Self {
        self.core().add_handle();
        Self::handle(self.core().clone(), self.codec.clone())
    }
}

impl<D: Device, C: Encode> Drop for Sink<D, C> {
    fn drop(&mut self) {
        self.room.release();
        self.core().drop_handle();
    }
}

impl<D: Device, C: Encode> fmt::Debug for Sink<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requests, bytes) = self.core().load();
        f.debug_struct("Sink").field("requests", &requests).field("bytes", &bytes).finish()
    }
}

/// Uses room for one item.
fn accept<C: Encode, W: Writer>(
    codec: &C,
    room: &mut Room<W>,
    item: C::Item,
    to: Completion<Written>,
) -> Result<(), SubmitError<C::Item>> {
    // User code, so before anything is counted.
    let bytes = codec.encode(item).map_err(SubmitError::NotEncoded)?;
    room.accept(Job::Write(bytes), to);
    Ok(())
}

/// The default limit of waiting requests.
const REQUESTS_MAX: usize = 1024;

/// The default limit of waiting bytes.
const BYTES_MAX: usize = 1024 * 1024;
