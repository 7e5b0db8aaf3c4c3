//! The state of a queue: its items and waiters.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

use dapple_sched::foreign::KeptWaker;
use dapple_sync::sync::limit::{Turn, Wakers};

use super::{PopError, PushError, WhenFull};
use crate::flow::gate::Gate;
use crate::lock::Mutex;

/// The queue shared by its handles. No item or waker is dropped, and no waker invoked, while the
/// lock is held.
///
/// The gate counts items and reserved places: `items.len() <= gate.count() <= capacity`. A queue
/// that drops its oldest has no reserved places.
pub(super) struct Shared<T> {
    pub(super) state: Mutex<State<T>>,
    pub(super) when_full: WhenFull,
}

pub(super) struct State<T> {
    pub(super) items: VecDeque<T>,
    pub(super) gate: Gate,
    /// Futures that wait for an item: one is woken for each item.
    futures: BTreeMap<u64, KeptWaker>,
    /// Handles polled as streams. All are woken, because those that were woken before may never be
    /// polled again.
    streams: BTreeMap<u64, KeptWaker>,
    next_place: u64,
    /// Places reserved for completions.
    pub(super) promised: usize,
    pub(super) is_closed: bool,
    pub(super) dropped: u64,
    pub(super) refused: u64,
}

/// A waiter for an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Popper {
    Future,
    Stream,
}

impl<T> Shared<T> {
    pub(super) fn new(capacity: usize, when_full: WhenFull) -> Self {
        let state = State {
            items: VecDeque::new(),
            gate: Gate::new(capacity, usize::MAX),
            futures: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_place: 0,
            promised: 0,
            is_closed: false,
            dropped: 0,
            refused: 0,
        };
        Shared { state: Mutex::new(state), when_full }
    }

    /// Adds an item without waiting.
    pub(super) fn push_now(&self, item: T) -> Result<(), PushError<T>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(PushError::Closed(item));
        }
        let mut oldest = None;
        if !state.gate.try_take() {
            if self.when_full != WhenFull::DropOldest {
                return Err(PushError::Full(item));
            }
            oldest = state.items.pop_front();
            state.dropped += 1;
        }
        let after = state.put(item);
        drop(state);
        after.run();
        drop(oldest);
        Ok(())
    }

    /// Adds an item that has room already. A closed queue takes only promised items.
    pub(super) fn push_taken(&self, item: T, is_promised: bool) -> Result<(), PushError<T>> {
        let mut state = self.state.lock();
        state.promised -= usize::from(is_promised);
        let (after, result) = match state.is_closed && !is_promised {
            true => (state.gate.give_back(1, 0), Err(PushError::Closed(item))),
            false => (state.put(item), Ok(())),
        };
        drop(state);
        after.run();
        result
    }

    /// Takes room for one item, or waits for it. An error: the queue is closed.
    pub(super) fn poll_room(&self, turn: &mut Turn, cx: &Context<'_>) -> Poll<Result<(), PopError>> {
        let mut state = self.state.lock();
        if state.is_closed {
            let after = state.gate.leave(turn);
            drop(state);
            after.run();
            return Poll::Ready(Err(PopError::Closed));
        }
        if !turn.is_some() && state.gate.try_take() {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        let waker = KeptWaker::from(cx.waker());
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            return self.poll_room(turn, cx);
        }
        let (poll, after) = state.gate.poll_take(turn, waker);
        drop(state);
        after.run();
        poll.map_err(|()| PopError::Closed)
    }

    pub(super) fn forget_room(&self, turn: &mut Turn) {
        if turn.is_some() {
            let after = self.state.lock().gate.leave(turn);
            after.run();
        }
    }

    /// Gives back unused room.
    pub(super) fn return_room(&self, count: usize, promised: usize) {
        if count == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.promised -= promised;
        let mut after = state.gate.give_back(count, 0);
        if state.has_ended() {
            // Waiters for the last item may have waited for this one.
            after = after.and(state.take_poppers());
        }
        drop(state);
        after.run();
    }

    /// Takes items through `take`, or returns the reason why there are none.
    pub(super) fn pop_now<R>(&self, take: impl FnOnce(&mut VecDeque<T>) -> R) -> Result<R, PopError> {
        let mut state = self.state.lock();
        if state.items.is_empty() {
            return Err(if state.has_ended() { PopError::Closed } else { PopError::Empty });
        }
        let (taken, after) = state.take(take);
        drop(state);
        after.run();
        Ok(taken)
    }

    /// As `pop_now`, and waits. An error: the queue is closed and empty.
    pub(super) fn poll_pop<R>(
        &self,
        place: &mut Option<u64>,
        popper: Popper,
        cx: &Context<'_>,
        take: impl FnOnce(&mut VecDeque<T>) -> R,
    ) -> Poll<Result<R, PopError>> {
        let mut waker = None;
        let mut state = loop {
            let mut state = self.state.lock();
            if !state.items.is_empty() || state.has_ended() {
                break state;
            }
            match waker.take() {
                Some(waker) => {
                    let after = state.wait(place, popper, waker);
                    drop(state);
                    after.run();
                    return Poll::Pending;
                }
                None => {
                    drop(state);
                    waker = Some(KeptWaker::from(cx.waker()));
                }
            }
        };
        let gone = Wakers::dropping(place.take().and_then(|id| state.poppers(popper).remove(&id)));
        let (result, after) = match state.items.is_empty() {
            true => (Err(PopError::Closed), Wakers::default()),
            false => {
                let (taken, after) = state.take(take);
                (Ok(taken), after)
            }
        };
        drop(state);
        gone.run();
        after.run();
        Poll::Ready(result)
    }

    /// Removes a waiter. If a waiter was woken for an item and has not taken it, it passes the wake
    /// on.
    pub(super) fn forget_popper(&self, place: &mut Option<u64>, popper: Popper) {
        let Some(id) = place.take() else { return };
        let mut state = self.state.lock();
        let kept = state.poppers(popper).remove(&id);
        let was_woken = kept.is_none();
        let next = match was_woken && popper == Popper::Future && !state.items.is_empty() {
            true => Wakers::waking(state.futures.pop_first().map(|(_, waker)| waker)),
            false => Wakers::default(),
        };
        drop(state);
        next.run();
        drop(kept);
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let after = state.gate.close().and(state.take_poppers());
        drop(state);
        after.run();
    }
}

impl<T> State<T> {
    /// Whether no item is there, and none can come.
    pub(super) fn has_ended(&self) -> bool {
        self.is_closed && self.items.is_empty() && self.promised == 0
    }

    fn put(&mut self, item: T) -> Wakers {
        self.items.push_back(item);
        let one = self.futures.pop_first().map(|(_, waker)| waker);
        let all = std::mem::take(&mut self.streams).into_values();
        Wakers::waking(one.into_iter().chain(all))
    }

    fn take<R>(&mut self, take: impl FnOnce(&mut VecDeque<T>) -> R) -> (R, Wakers) {
        let before = self.items.len();
        let taken = take(&mut self.items);
        let mut after = self.gate.give_back(before - self.items.len(), 0);
        if self.has_ended() {
            // The last promised item: others may have waited for it as well.
            after = after.and(self.take_poppers());
        }
        if self.items.is_empty() && self.items.capacity() > KEPT_MAX {
            // Release the memory of a burst.
            self.items.shrink_to(KEPT_MAX);
        }
        (taken, after)
    }

    fn poppers(&mut self, popper: Popper) -> &mut BTreeMap<u64, KeptWaker> {
        match popper {
            Popper::Future => &mut self.futures,
            Popper::Stream => &mut self.streams,
        }
    }

    fn wait(&mut self, place: &mut Option<u64>, popper: Popper, waker: KeptWaker) -> Wakers {
        if let Some(kept) = place.and_then(|id| self.poppers(popper).get_mut(&id)) {
            return Wakers::dropping(Some(std::mem::replace(kept, waker)));
        }
        self.next_place += 1;
        let id = self.next_place;
        self.poppers(popper).insert(id, waker);
        *place = Some(id);
        Wakers::default()
    }

    fn take_poppers(&mut self) -> Wakers {
        let futures = std::mem::take(&mut self.futures).into_values();
        let streams = std::mem::take(&mut self.streams).into_values();
        Wakers::waking(futures.chain(streams))
    }
}

/// The capacity that an empty queue keeps.
const KEPT_MAX: usize = 64;
