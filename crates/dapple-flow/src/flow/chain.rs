//! Flows: events that move from a queue or a source to a handler.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use dapple_sched::foreign::KeptWaker;
use dapple_sched::{Handle, JoinError, JoinHandle};

use super::handler::{Handler, Receipt};
use super::queue::Queue;
use crate::lock::Mutex;
use dapple_sync::sync::oneshot;

/// A running flow of events from a queue, a source or a listener to a [`Handler`], until one of
/// them ends.
///
/// It is a background task: a shutdown of the runtime does not wait for it. **Dropping this stops
/// it**, and drops a source with the data that it has not sent on. [`stop`](Self::stop) returns the
/// source, [`detach`](Self::detach) lets the flow go on alone. An await of it resolves when no more
/// events will come or the handler takes none; by then all callbacks have run.
#[must_use = "dropping a flow stops it: keep it, await it, or call `detach`"]
pub struct Flow<U: Send + 'static> {
    task: Option<JoinHandle<Ended<U>>>,
    stop: Arc<Stop>,
}

/// How a [`Flow`] ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended<U> {
    /// The origin of the events, with all events that were not sent on.
    pub upstream: U,
    /// Events sent on, without those that a filter removed.
    pub count: u64,
    /// The reason for the end.
    pub reason: EndReason,
}

/// Why a [`Flow`] ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndReason {
    /// No more events will come: the queue is closed and empty, or the source is at its end.
    Finished,
    /// [`Flow::stop`] was called.
    Stopped,
    /// The source failed.
    UpstreamFailed(io::Error),
    /// The handler takes no more: the queue is closed, or the sink failed.
    HandlerFailed(io::Error),
}

impl<U: Send + 'static> Flow<U> {
    /// Stops it, and returns the origin of the events. No event is lost: each taken event has been
    /// sent on. Some callbacks may still have to run.
    ///
    /// Cancel safe: dropping the future stops the flow, too.
    ///
    /// # Errors
    ///
    /// A closure of the flow panicked, or the runtime has shut down.
    pub async fn stop(self) -> Result<Ended<U>, JoinError> {
        self.stop.set();
        self.await
    }

    /// Waits until it ends by itself, and returns the number of events sent on. For callers that
    /// need neither the source nor further details.
    ///
    /// Cancel safe: dropping the future stops the flow.
    ///
    /// # Errors
    ///
    /// That of the source or the handler; or one of kind `Other` if a closure of the flow panicked
    /// or the runtime has shut down.
    ///
    /// ```
    /// use dapple_flow::flow::{Any, Sink, Source};
    ///
    /// /// Copies from any device to any other.
    /// async fn copy(from: &str, to: &str) -> std::io::Result<()> {
    ///     let sink = Sink::<Any>::open(to).await?;
    ///     Source::<Any>::open(from).await?.chain(sink.clone()).finished().await?;
    ///     sink.close().await
    /// }
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// let path = std::env::temp_dir().join(format!("dapple-io-copy-{}", std::process::id()));
    /// let (one, other) = (format!("{}", path.display()), format!("{}-2", path.display()));
    /// std::fs::write(&one, "hello")?;
    /// runtime.block_on(copy(&format!("file:{one}"), &format!("file:{other}")))?;
    /// assert_eq!(std::fs::read_to_string(&other)?, "hello");
    /// std::fs::remove_file(&one)?;
    /// std::fs::remove_file(&other)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn finished(self) -> io::Result<u64> {
        let ended = self.await.map_err(io::Error::other)?;
        match ended.reason {
            EndReason::Finished | EndReason::Stopped => Ok(ended.count),
            EndReason::UpstreamFailed(error) | EndReason::HandlerFailed(error) => Err(error),
        }
    }

    /// Lets it continue until it ends by itself or the runtime shuts down. Logs its error, if it
    /// has one.
    pub fn detach(mut self) {
        // If dropped without an abort, a task continues.
        drop(self.task.take());
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// Cancel safe: dropping a [`Flow`] stops it.
impl<U: Send + 'static> Future for Flow<U> {
    type Output = Result<Ended<U>, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.task.as_mut().expect("polled after it resolved");
        let ended = ready!(Pin::new(task).poll(cx));
        self.task = None;
        Poll::Ready(ended)
    }
}

impl<U: Send + 'static> Drop for Flow<U> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<U: Send + 'static> fmt::Debug for Flow<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("finished", &self.is_finished()).finish()
    }
}

impl<T: Send + 'static> Queue<T> {
    /// Sends all items of this queue to a handler from now on: another queue, a callback, a sink,
    /// or your own (Gribble's composition of queues; section 5.2.3).
    ///
    /// An item leaves this queue only when the handler has room for it. Several chains from one
    /// queue share its items; several chains to one queue merge there. The handler is not closed
    /// when this queue is: see [`CloseAtEnd`](super::CloseAtEnd).
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use dapple_flow::flow::Queue;
    /// use dapple_sched::Color;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(2).build()?;
    /// let _entered = runtime.enter();
    /// let (tx, rx) = mpsc::channel();
    /// let queue = Queue::new(16);
    /// // One at a time, in its own color: no lock.
    /// let mut sum = 0;
    /// let count = Color::new().wrap(move |n: u64| {
    ///     sum += n;
    ///     drop(tx.send(sum));
    /// });
    /// queue.chain(count).detach();
    /// for n in [1, 2, 3] {
    ///     queue.push_blocking(n, None).expect("the queue stays open");
    /// }
    /// queue.close();
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 3, 6]);
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
    pub fn chain(&self, to: impl Handler<T>) -> Flow<Queue<T>> {
        flow(self.clone(), Some, to)
    }

    /// As [`chain`](Self::chain), through a closure that maps an item, or removes it with `None`.
    ///
    /// If the closure panics, its earlier results are sent on and the flow ends; later items stay
    /// in this queue.
    ///
    /// # Cancel safety
    ///
    /// Dropping the flow ends it; [`Flow`] says what happens to its events.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn chain_map<R: Send + 'static>(
        &self,
        map: impl FnMut(T) -> Option<R> + Send + 'static,
        to: impl Handler<R>,
    ) -> Flow<Queue<T>> {
        flow(self.clone(), map, to)
    }
}

/// An origin of events.
pub(super) trait Upstream: Send + 'static {
    type Event: Send + 'static;

    /// Whether there is an event; `false`: there will be none. The event stays until this flow or
    /// another consumer takes it.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>>;

    /// Takes an available event.
    fn take(&mut self) -> Option<Self::Event>;
}

/// Starts a flow.
pub(super) fn flow<U, R, M, H>(upstream: U, map: M, handler: H) -> Flow<U>
where
    U: Upstream,
    R: Send + 'static,
    M: FnMut(U::Event) -> Option<R> + Send + 'static,
    H: Handler<R>,
{
    let stop = Arc::new(Stop::default());
    let mut pump = Pump { upstream, map, handler, receipt: None, count: 0, stop: stop.clone() };
    let task = Handle::current().new_color().spawn_background(async move {
        let reason = std::future::poll_fn(|cx| pump.poll(cx)).await;
        if let EndReason::UpstreamFailed(error) | EndReason::HandlerFailed(error) = &reason {
            tracing::debug!(%error, count = pump.count, "a flow of events has ended");
        }
        Ended { upstream: pump.upstream, count: pump.count, reason }
    });
    Flow { task: Some(task), stop }
}

/// Moves events. Between two polls it holds no events: they are at the origin or with the handler.
struct Pump<U, M, H> {
    upstream: U,
    map: M,
    handler: H,
    /// The handler is still busy with the last batch.
    receipt: Option<oneshot::Receiver<()>>,
    count: u64,
    stop: Arc<Stop>,
}

impl<U: Upstream, M, H> Pump<U, M, H> {
    fn poll<R>(&mut self, cx: &mut Context<'_>) -> Poll<EndReason>
    where
        M: FnMut(U::Event) -> Option<R>,
        H: Handler<R>,
    {
        for _ in 0..BATCHES_A_POLL {
            if self.stop.poll(cx.waker()) {
                return Poll::Ready(EndReason::Stopped);
            }
            if let Some(receipt) = &mut self.receipt {
                // Never sent: the channel closes with its receipt.
                let _ = ready!(Pin::new(receipt).poll(cx));
                self.receipt = None;
            }
            match self.upstream.poll_ready(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(EndReason::Finished),
                Poll::Ready(Err(error)) => return Poll::Ready(EndReason::UpstreamFailed(error)),
                Poll::Pending => {
                    // Other senders may need this room.
                    self.handler.release_room();
                    return Poll::Pending;
                }
            }
            match ready!(self.handler.poll_room(cx)) {
                Ok(room) => self.move_batch(room.min(BATCH_MAX)),
                Err(error) => return Poll::Ready(EndReason::HandlerFailed(error)),
            }
        }
        // Yield to other work.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn move_batch<R>(&mut self, max: usize)
    where
        M: FnMut(U::Event) -> Option<R>,
        H: Handler<R>,
    {
        let mut batch = Vec::new();
        let mut panicked = None;
        while batch.len() < max
            && let Some(event) = self.upstream.take()
        {
            match catch_unwind(AssertUnwindSafe(|| (self.map)(event))) {
                Ok(mapped) => batch.extend(mapped),
                Err(payload) => {
                    panicked = Some(payload);
                    break;
                }
            }
        }
        if !batch.is_empty() {
            self.count += batch.len() as u64;
            let (receipt, receiver) = Receipt::new();
            self.receipt = Some(receiver);
            self.handler.give(batch, receipt);
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }
}

/// A request to stop, from any thread.
#[derive(Default)]
struct Stop(Mutex<(bool, Option<KeptWaker>)>);

impl Stop {
    fn set(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether to stop. If not, keeps the waker for that.
    fn poll(&self, waker: &Waker) -> bool {
        let waker = KeptWaker::from(waker);
        let mut state = self.0.lock();
        if state.0 {
            return true;
        }
        let replaced = state.1.replace(waker);
        drop(state);
        drop(replaced);
        false
    }
}

/// The most events sent at once.
pub(super) const BATCH_MAX: usize = 64;

/// The number of batches after which a flow that always has events yields.
const BATCHES_A_POLL: usize = 8;
