//! What takes messages from their sources to the sink.

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
/// | messages of a source | what [`source`](Aggregate::source) says | its `poll_ready` waits; others are not held up |
///
/// | when | then |
/// |---|---|
/// | a response is dropped | its message is taken out of line; what the sink has goes on or not as the sink does it |
/// | a source is dropped | what waits of it goes on |
/// | the sink is not ready | all wait |
/// | the sink's `poll_ready` fails | the message whose turn it is gets the error; the next has its own try |
/// | the pump is dropped | all that waits, and what comes later, fails with [`Refused`] (stopping) |
///
/// Responses come from the sink to those who sent the messages; as many are under way as the sink lets. A message costs a
/// lock and a step in a tree twice.
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
    /// Handles and sources that are left; without any the pump ends when it is empty.
    handles: usize,
    is_over: bool,
}

/// A message that waits, and who waits for what becomes of it.
pub(super) struct Entry<M, F> {
    pub(super) message: M,
    pub(super) reply: oneshot::Sender<Result<F, BoxError>>,
    pub(super) credit: Permit,
}

impl<M, F> Aggregate<M, F> {
    /// Merges into `sink`; the [`Pump`] is to be spawned.
    pub fn new<S>(sink: S, discipline: Discipline) -> (Aggregate<M, F>, Pump<M, S>)
    where
        S: Service<M, Future = F>,
    {
        let state = State { merge: Merge::new(discipline), pump: None, handles: 1, is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        (Aggregate { shared: shared.clone() }, Pump { sink, shared })
    }

    /// A source of messages, with room for `len_max` that wait, at least 1.
    pub fn source(&self, len_max: usize) -> Source<M, F> {
        self.source_with_priority(len_max, 0)
    }

    /// A source whose messages go before those of lower ones with [`Discipline::Priority`]; otherwise it makes no difference.
    pub fn source_with_priority(&self, len_max: usize, priority: u8) -> Source<M, F> {
        let key = self.shared.change(|state| state.merge.source(priority));
        Source::new(self.clone(), key, Limit::new(len_max.max(1)))
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        lock(&self.shared.state).merge.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.shared.state).merge.is_empty()
    }
}

impl<M, F> Shared<M, F> {
    /// Changes something and has the pump look.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State<M, F>) -> R) -> R {
        let (result, pump) = {
            let mut state = lock(&self.state);
            (change(&mut state), state.pump.take())
        };
        pump.into_iter().for_each(KeptWaker::wake);
        result
    }

    /// Puts a message in line, unless nobody takes it any more.
    pub(super) fn push(&self, key: u64, entry: Entry<M, F>) -> Result<u64, Entry<M, F>> {
        self.change(|state| if state.is_over { Err(entry) } else { Ok(state.merge.push(key, entry)) })
    }

    /// Takes a message out of line; that is no news for the pump.
    pub(super) fn cancel(&self, key: u64, ticket: u64) -> Option<Entry<M, F>> {
        lock(&self.state).merge.cancel(key, ticket)
    }
}

/// That nobody takes messages any more.
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

/// Takes messages to the sink. **Spawn it**, on any executor: without it nothing moves.
///
/// It resolves when all sources and the [`Aggregate`] are dropped and nothing waits any more. Cancel safe: with the pump
/// dropped, what waits fails with [`Refused`].
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
        // What a sink says at once it says for ever; others of the same color have their turn, too.
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
            // It is empty if what waited was given up meanwhile: then the sink is ready for the next.
            let Some(entry) = lock(&this.shared.state).merge.pop() else { continue };
            let Entry { message, reply, credit } = entry;
            // The place is free before the sink works, so that the next can come while it does.
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

/// Messages in a row, before others have their turn.
const BATCH: usize = 64;
