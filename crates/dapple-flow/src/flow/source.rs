//! Sources of items (Gribble, section 5.1).

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::BytesMut;
use dapple_sched::{poll_budget, unconstrained};

use super::chain::{Flow, Upstream, flow};
use super::codec::{Chunks, Decode};
use super::device::{Device, Reader};
use super::handler::Handler;
use dapple_io::time::timeout;

/// Yields items as they arrive: bytes, or the items of a codec.
///
/// Consumers take items one by one ([`next`](Self::next)), in batches
/// ([`next_many`](Self::next_many)), with a limit, without waiting, as a `Stream`, or send them to
/// a [`Handler`] ([`chain`](Self::chain)). A source is read only on demand. An unread one slows the
/// other side down, and its memory stays at one item and the data read with it. A waiting source
/// has no buffer at all.
///
/// After an error or the end it yields nothing more.
///
/// `D` is the device: [`Tcp`](super::Tcp), [`Unix`](super::Unix), [`Pipe`](super::Pipe),
/// [`Disk`](super::Disk), your own, or [`Any`](super::Any), which takes the kind from the name. `C`
/// decodes the items.
///
/// ```
/// use dapple_flow::flow::{Any, Lines, Source};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let path = std::env::temp_dir().join(format!("dapple-io-source-{}", std::process::id()));
///     std::fs::write(&path, "one\ntwo\nthree\n")?;
///     // From a configuration.
///     let name = format!("file:{}", path.display());
///     let mut lines = Source::<Any>::open(&name).await?.decode(Lines::new(1024));
///     assert_eq!(lines.next().await.expect("there is a line")?, "one");
///     assert_eq!(lines.next_many(10).await?, ["two", "three"]);
///     assert!(lines.next().await.is_none());
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Source<D: Device, C: Decode = Chunks> {
    reader: D::Reader,
    codec: C,
    /// Bytes of items not yet taken.
    buf: BytesMut,
    /// An item that was found and not taken.
    ready: Option<C::Item>,
    stage: SourceState,
    read_len_max: usize,
}

enum SourceState {
    /// Whether the codec has seen all of `buf`.
    Open {
        has_news: bool,
    },
    /// No more will be read.
    AtEnd,
    /// Reported once.
    Failed(io::Error),
    Ended,
}

impl<D: Device> Source<D> {
    /// Opens a device for reading. For devices with two directions see [`connect`](super::connect).
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, with an example; errors of the device.
    pub async fn open(name: &str) -> io::Result<Self> {
        Ok(Self::new(D::open_reader(name).await?))
    }

    /// A source of an open device.
    pub fn new(reader: D::Reader) -> Self {
        Source {
            reader,
            codec: Chunks,
            buf: BytesMut::new(),
            ready: None,
            stage: SourceState::Open { has_news: false },
            read_len_max: READ_LEN_MAX,
        }
    }
}

impl<D: Device, C: Decode> Source<D, C> {
    /// The same source with other items. Undecoded bytes are kept. Items that were found and not
    /// taken are lost; these exist only after [`Flow::stop`].
    pub fn decode<N: Decode>(self, codec: N) -> Source<D, N> {
        let stage = match self.stage {
            SourceState::Open { .. } => SourceState::Open { has_news: !self.buf.is_empty() },
            stage => stage,
        };
        Source { reader: self.reader, codec, buf: self.buf, ready: None, stage, read_len_max: self.read_len_max }
    }

    /// At most this many bytes are read at once, which is also the longest item of [`Chunks`].
    /// Default and maximum: 64 KiB.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn set_read_len_max(&mut self, read_len_max: usize) {
        assert!(read_len_max > 0, "a source must read at least 1 byte at a time");
        self.read_len_max = read_len_max.min(READ_LEN_MAX);
    }

    /// The next item, waiting for it; `None` at the end.
    ///
    /// Cancel safe: what has arrived stays in the source.
    ///
    /// # Errors
    ///
    /// Those of the device and of the codec. An error is the last item.
    pub async fn next(&mut self) -> Option<io::Result<C::Item>> {
        poll_fn(|cx| self.poll_item(cx)).await
    }

    /// The next item, if all of it has arrived.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it has not; otherwise as [`next`](Self::next).
    pub fn try_next(&mut self) -> Option<io::Result<C::Item>> {
        let mut cx = Context::from_waker(Waker::noop());
        // A single poll must not be refused by the budget.
        let mut look = unconstrained(poll_fn(|cx| self.poll_item(cx)));
        match Pin::new(&mut look).poll(&mut cx) {
            Poll::Ready(item) => item,
            Poll::Pending => Some(Err(io::ErrorKind::WouldBlock.into())),
        }
    }

    /// As [`next`](Self::next), with a limit on how long it waits. Cancel safe.
    ///
    /// # Errors
    ///
    /// `TimedOut` after the limit, which does not harm the source; otherwise as
    /// [`next`](Self::next).
    pub async fn next_timeout(&mut self, limit: Duration) -> Option<io::Result<C::Item>> {
        match timeout(limit, self.next()).await {
            Ok(item) => item,
            Err(elapsed) => Some(Err(elapsed.into())),
        }
    }

    /// Waits for an item, and returns it with later ones that have arrived, at most `max`: *delivery
    /// in batches*. Empty only at the end, or if `max` is 0.
    ///
    /// Cancel safe: what has arrived stays in the source.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next). Items before the error are returned first; the error comes with the
    /// next call.
    pub async fn next_many(&mut self, max: usize) -> io::Result<Vec<C::Item>> {
        if max == 0 || !poll_fn(|cx| self.poll_ready(cx)).await? {
            return Ok(Vec::new());
        }
        let mut items = Vec::new();
        while items.len() < max
            && let Some(item) = self.take()
        {
            items.push(item);
        }
        Ok(items)
    }

    /// Sends the items to a handler from now on: a queue, a callback, a sink, or your own. While it
    /// has no room, the source is not read. The handler is not closed at the end: see
    /// [`CloseAtEnd`](super::CloseAtEnd).
    ///
    /// ```
    /// use dapple_flow::flow::{self, CloseAtEnd, Lines, Queue};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let (sink, source) = flow::pipe()?;
    ///     let queue = Queue::new(1);
    ///     let flow = source.decode(Lines::new(80)).chain(CloseAtEnd(queue.clone()));
    ///     sink.write("first\nsecond\n").await?;
    ///     sink.close().await?;
    ///     assert_eq!(queue.pop().await.as_deref(), Some("first"));
    ///     assert_eq!(queue.pop().await.as_deref(), Some("second"));
    ///     assert_eq!(queue.pop().await, None);
    ///     assert_eq!(flow.await.expect("nothing panics").count, 2);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the flow ends it; [`Flow`] says what happens to its events.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn chain(self, to: impl Handler<C::Item>) -> Flow<Source<D, C>> {
        flow(self, Some, to)
    }

    /// As [`chain`](Self::chain), through a closure that maps an item, or removes it with `None`.
    /// If the closure panics, its earlier results are sent on, and the source is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the flow ends it; [`Flow`] says what happens to its events.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn chain_map<R: Send + 'static>(
        self,
        map: impl FnMut(C::Item) -> Option<R> + Send + 'static,
        to: impl Handler<R>,
    ) -> Flow<Source<D, C>> {
        flow(self, map, to)
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<C::Item>>> {
        Poll::Ready(match ready!(self.poll_ready(cx)) {
            Ok(false) => None,
            // It stays in the source if it is not taken now.
            Ok(true) => {
                ready!(poll_budget(cx));
                self.ready.take().map(Ok)
            }
            Err(error) => Some(Err(error)),
        })
    }

    /// Looks for an item in the buffer.
    fn find(&mut self) {
        if self.ready.is_some() {
            return;
        }
        let found = match self.stage {
            SourceState::Open { has_news: true } => self.codec.decode(&mut self.buf),
            SourceState::AtEnd => self.codec.decode_end(&mut self.buf),
            _ => return,
        };
        match (found, &self.stage) {
            (Ok(Some(item)), _) => self.ready = Some(item),
            (Ok(None), SourceState::AtEnd) => self.stage = SourceState::Ended,
            (Ok(None), _) if self.buf.len() >= self.codec.item_len_max() => {
                let text = format!("{} bytes have arrived that are not an item of this codec", self.buf.len());
                self.fail(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            (Ok(None), _) => self.stage = SourceState::Open { has_news: false },
            (Err(error), _) => self.fail(error),
        }
        if self.buf.is_empty() {
            // A waiting source keeps no buffer.
            self.buf = BytesMut::new();
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.buf = BytesMut::new();
        self.stage = SourceState::Failed(error);
    }
}

impl<D: Device, C: Decode> Upstream for Source<D, C> {
    type Event = C::Item;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            self.find();
            if self.ready.is_some() {
                return Poll::Ready(Ok(true));
            }
            match &self.stage {
                SourceState::Open { .. } => {}
                SourceState::AtEnd => continue,
                SourceState::Ended => return Poll::Ready(Ok(false)),
                SourceState::Failed(_) => {
                    let SourceState::Failed(error) = std::mem::replace(&mut self.stage, SourceState::Ended) else {
                        continue;
                    };
                    return Poll::Ready(Err(error));
                }
            }
            match ready!(self.reader.poll_read(cx, self.read_len_max)) {
                Ok(read) if read.is_empty() => self.stage = SourceState::AtEnd,
                Ok(read) => {
                    self.stage = SourceState::Open { has_news: true };
                    if self.buf.is_empty() {
                        // The only owner, so nothing is copied.
                        self.buf = read.into();
                    } else {
                        self.buf.extend_from_slice(&read);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
    }

    fn take(&mut self) -> Option<C::Item> {
        self.find();
        self.ready.take()
    }
}

impl<D: Device, C: Decode> Unpin for Source<D, C> {}

/// The items. Cancel safe: what has arrived stays in the source.
impl<D: Device, C: Decode> futures_core::Stream for Source<D, C> {
    type Item = io::Result<C::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_item(cx)
    }
}

impl<D: Device, C: Decode> futures_core::FusedStream for Source<D, C> {
    fn is_terminated(&self) -> bool {
        self.ready.is_none() && matches!(self.stage, SourceState::Ended)
    }
}

impl<D: Device<Reader: fmt::Debug>, C: Decode> fmt::Debug for Source<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("reader", &self.reader).field("buffered", &self.buf.len()).finish()
    }
}

/// The most bytes read at once, unless it is set lower.
const READ_LEN_MAX: usize = 64 * 1024;
