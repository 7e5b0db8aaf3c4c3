//! Moves messages from their sources to the sink.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sched::foreign::KeptWaker;
use dapple_sync::sync::oneshot;
use dapple_tower::switch::{Mutex, lock};
use tower_service::Service;

use super::merge::{Discipline, Merge};
use super::source::Source;
use crate::{BoxError, Reason, Refused};
use dapple_sync::sync::limit::{Limit, Permit};

/// Merges the messages of many sources into one sink.
///
/// | kept | bound | when it is reached |
/// |---|---|---|
/// | messages of a source | what [`source`](Aggregate::source) says | its `poll_ready` waits; other sources continue |
///
/// | when | then |
/// |---|---|
/// | a response is dropped | its message leaves the queue; if the message is already at the sink, the sink decides whether it continues or stops |
/// | a source is dropped | its waiting messages are still sent |
/// | the sink is not ready | all messages wait |
/// | the sink's `poll_ready` fails | the next message gets the error; the one after it tries again |
/// | the pump is dropped | waiting and later messages fail with [`Refused`] (stopping) |
///
/// The sink's responses go to the senders of the messages; the sink decides how many are in flight.
/// A message costs two lock acquisitions and two tree operations.
///
/// ```
/// use std::convert::Infallible;
/// use dapple_stage::operators::aggregate::{Aggregate, Discipline};
/// use tower::{ServiceExt, service_fn};
///
/// let sink = service_fn(async |n: u32| Ok::<_, Infallible>(n * 2));
/// let (aggregate, pump) = Aggregate::new(sink, Discipline::RoundRobin);
/// std::thread::spawn(move || dapple_sched::block_on(pump));
///
/// let (one, other) = (aggregate.source(16), aggregate.source(16));
/// assert_eq!(dapple_sched::block_on(one.oneshot(1))?, 2);
/// assert_eq!(dapple_sched::block_on(other.oneshot(2))?, 4);
/// # Ok::<(), dapple_stage::BoxError>(())
/// ```
pub struct Aggregate<M, F> {
    pub(super) shared: Arc<Shared<M, F>>,
}

pub(super) struct Shared<M, F> {
    state: Mutex<State<M, F>>,
}

pub(super) struct State<M, F> {
    pub(super) merge: Merge<Entry<M, F>>,
    pump: Option<KeptWaker>,
    /// Live handles and sources. At zero, the pump ends when it is empty.
    handles: usize,
    is_over: bool,
}

/// A waiting message, and the recipient of its response.
pub(super) struct Entry<M, F> {
    pub(super) message: M,
    pub(super) reply: oneshot::Sender<Result<F, BoxError>>,
    pub(super) credit: Permit,
}

impl<M, F> Aggregate<M, F> {
    /// Merges into `sink`. Spawn the returned [`Pump`].
    pub fn new<S>(sink: S, discipline: Discipline) -> (Aggregate<M, F>, Pump<M, S>)
    where
        S: Service<M, Future = F>,
    {
        let state = State { merge: Merge::new(discipline), pump: None, handles: 1, is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        (Aggregate { shared: shared.clone() }, Pump { sink, shared })
    }

    /// A source with room for `len_max` waiting messages, at least 1.
    pub fn source(&self, len_max: usize) -> Source<M, F> {
        self.source_with_priority(len_max, 0)
    }

    /// A source with a priority for [`Discipline::Priority`]: its messages go before those of lower
    /// ones. Other disciplines ignore it.
    pub fn source_with_priority(&self, len_max: usize, priority: u8) -> Source<M, F> {
        let key = self.shared.change(|state| state.merge.source(priority));
        Source::new(self.clone(), key, Limit::new(len_max.max(1)))
    }

    /// The number of waiting messages.
    pub fn len(&self) -> usize {
        lock(&self.shared.state).merge.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.shared.state).merge.is_empty()
    }
}

impl<M, F> Shared<M, F> {
    /// Changes the state and wakes the pump.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<M, F>) -> R) -> R {
        let (result, pump) = {
            let mut state = lock(&self.state);
            (change(&mut state), state.pump.take())
        };
        pump.into_iter().for_each(KeptWaker::wake);
        result
    }

    /// Queues a message, unless the pump has ended.
    pub(super) fn push(&self, key: u64, entry: Entry<M, F>) -> Result<u64, Entry<M, F>> {
        self.change(|state| if state.is_over { Err(entry) } else { Ok(state.merge.push(key, entry)) })
    }

    /// Removes a waiting message. The pump need not learn of it.
    pub(super) fn cancel(&self, key: u64, ticket: u64) -> Option<Entry<M, F>> {
        lock(&self.state).merge.cancel(key, ticket)
    }
}

/// The error of a message that no pump will take.
pub(super) fn stopping() -> BoxError {
    Refused::new(Reason::Stopping, std::time::Duration::ZERO).into()
}

impl<M, F> Clone for Aggregate<M, F> {
    fn clone(&self) -> Aggregate<M, F> {
        lock(&self.shared.state).handles += 1;
        Aggregate { shared: self.shared.clone() }
    }
}

impl<M, F> Drop for Aggregate<M, F> {
    fn drop(&mut self) {
        self.shared.change(|state| state.handles -= 1);
    }
}

impl<M, F> fmt::Debug for Aggregate<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregate").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Moves messages to the sink. **Spawn it**, on any executor: without it nothing moves.
///
/// It resolves when the [`Aggregate`] and all sources are dropped and no message waits. Cancel
/// safe: when it is dropped, waiting messages fail with [`Refused`].
#[must_use = "nothing moves unless it is spawned"]
pub struct Pump<M, S: Service<M>> {
    sink: S,
    shared: Arc<Shared<M, S::Future>>,
}

impl<M, S: Service<M>> Unpin for Pump<M, S> {}

impl<M, S> Future for Pump<M, S>
where
    S: Service<M>,
    S::Error: Into<BoxError>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let waker = KeptWaker::from(cx.waker());
        // A sink may always be ready at once; yield after a batch, so that other work of the color
        // gets its turn.
        for _ in 0..BATCH {
            {
                let mut state = lock(&this.shared.state);
                if state.merge.is_empty() {
                    if state.handles == 0 {
                        return Poll::Ready(());
                    }
                    let old = state.pump.replace(waker);
                    drop(state);
                    drop(old);
                    return Poll::Pending;
                }
            }
            let readiness = ready!(this.sink.poll_ready(cx));
            // The queue is empty if the waiting messages were canceled meanwhile: keep the
            // readiness for the next.
            let Some(entry) = lock(&this.shared.state).merge.pop() else { continue };
            let Entry { message, reply, credit } = entry;
            // Free the place before the sink works, so that the next message can come meanwhile.
            drop(credit);
            let _given_up = reply.send(match readiness {
                Ok(()) => Ok(this.sink.call(message)),
                Err(error) => Err(error.into()),
            });
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<M, S: Service<M>> Drop for Pump<M, S> {
    fn drop(&mut self) {
        let (left, waker) = {
            let mut state = lock(&self.shared.state);
            state.is_over = true;
            (state.merge.drain(), state.pump.take())
        };
        drop(waker);
        for entry in left {
            let _given_up = entry.reply.send(Err(stopping()));
        }
    }
}

impl<M, S: Service<M>> fmt::Debug for Pump<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("len", &lock(&self.shared.state).merge.len()).finish_non_exhaustive()
    }
}

/// Messages in a row before the pump yields.
const BATCH: usize = 64;
