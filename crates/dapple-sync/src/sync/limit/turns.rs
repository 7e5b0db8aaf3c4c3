//! A number of permits and a waiting line, without a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::task::Poll;

use dapple_sched::foreign::KeptWaker;

use super::LimitError;

/// The state machine of a [`Limit`](super::Limit), for code that keeps it under its own lock,
/// together with the resource.
///
/// A waiter has one [`Turn`] at a time:
///
/// | turn | next | when |
/// |---|---|---|
/// | none | none | a permit is free and the line is empty: the caller has it |
/// | none | none | the line is full, or the limit is closed: refused |
/// | none | waiting | otherwise |
/// | waiting | granted | a permit is returned: it counts as taken from now on, so that no newcomer overtakes |
/// | granted | none | the waiter polls, and has its permit; or [`leave`](Self::leave)s, and the next one gets it |
/// | waiting | none | `leave` |
/// | waiting, granted | none | [`close`](Self::close): the waiter's next poll is refused |
///
/// `used` counts taken and granted permits. It exceeds `max` only after [`set_max`](Self::set_max)
/// has lowered that. No method wakes or drops a waker: they are returned as [`Wakers`], for after
/// the lock. Each call costs the logarithm of the line's length; a permit without a wait costs a
/// comparison.
///
/// ```
/// use std::task::{Poll, Waker};
/// use dapple_sync::sync::limit::{Turn, Turns};
///
/// let mut turns = Turns::new(1);
/// assert!(turns.try_take());
/// let mut turn = Turn::default();
/// let (poll, wakers) = turns.poll_take(&mut turn, Waker::noop().into());
/// wakers.run(); // after the lock, where there is one
/// assert!(poll.is_pending());
/// turns.give_back(1).run();
/// assert!(!turns.try_take(), "the permit was granted to the waiter");
/// assert_eq!(turns.poll_take(&mut turn, Waker::noop().into()).0, Poll::Ready(Ok(())));
/// ```
pub struct Turns {
    max: usize,
    used: usize,
    waiting_max: usize,
    is_paused: bool,
    is_closed: bool,
    waiting: BTreeMap<u64, KeptWaker>,
    granted: BTreeSet<u64>,
    next: u64,
}

/// A waiter's turn in the line of [`Turns`]; by default none. Before dropping it, pass it to
/// [`Turns::leave`].
#[derive(Debug, Default)]
pub struct Turn(Option<u64>);

/// Wakers to invoke or drop after the lock.
#[must_use = "run it after the lock"]
#[derive(Default)]
pub struct Wakers {
    wake: Vec<KeptWaker>,
    dropped: Option<KeptWaker>,
}

impl Turns {
    /// This many permits, and an unbounded line.
    pub fn new(max: usize) -> Turns {
        Turns {
            max,
            used: 0,
            waiting_max: usize::MAX,
            is_paused: false,
            is_closed: false,
            waiting: BTreeMap::new(),
            granted: BTreeSet::new(),
            next: 0,
        }
    }

    /// Refuses newcomers while this many wait. Current waiters stay.
    pub fn set_waiting_max(&mut self, waiting_max: usize) {
        self.waiting_max = waiting_max;
    }

    /// The number of permits.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Permits taken, or granted to waiters that have not polled since.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The length of the line, without granted waiters.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Changes the number of permits. Taken permits stay taken.
    pub fn set_max(&mut self, max: usize) -> Wakers {
        self.max = max;
        self.grant()
    }

    /// Grants no permits while paused, for limits of another kind in addition to the count.
    pub fn set_paused(&mut self, is_paused: bool) -> Wakers {
        self.is_paused = is_paused;
        self.grant()
    }

    fn has_room(&self) -> bool {
        self.used < self.max && !self.is_paused && !self.is_closed
    }

    /// Takes a permit, unless there is none or others wait for one.
    #[inline]
    pub fn try_take(&mut self) -> bool {
        let is_taken = self.has_room() && self.waiting.is_empty();
        self.used += usize::from(is_taken);
        is_taken
    }

    /// Takes up to `max` permits, and returns their number.
    pub fn take_more(&mut self, max: usize) -> usize {
        let mut taken = 0;
        while taken < max && self.try_take() {
            taken += 1;
        }
        taken
    }

    /// Takes a permit, or keeps the waker and a position in the queue.
    ///
    /// Ready with an error: the line is full, or the limit is closed.
    pub fn poll_take(&mut self, turn: &mut Turn, waker: KeptWaker) -> (Poll<Result<(), LimitError>>, Wakers) {
        if let Some(id) = turn.0 {
            if self.granted.remove(&id) {
                turn.0 = None;
                return (Poll::Ready(Ok(())), Wakers::dropping(waker));
            }
            if let Some(kept) = self.waiting.get_mut(&id) {
                let replaced = std::mem::replace(kept, waker);
                return (Poll::Pending, Wakers::dropping(replaced));
            }
            // The limit was closed.
            turn.0 = None;
        }
        if self.is_closed {
            return (Poll::Ready(Err(LimitError::Closed)), Wakers::dropping(waker));
        }
        if self.try_take() {
            return (Poll::Ready(Ok(())), Wakers::dropping(waker));
        }
        if self.waiting.len() >= self.waiting_max {
            let error = LimitError::Full { waiting: self.waiting.len() };
            return (Poll::Ready(Err(error)), Wakers::dropping(waker));
        }
        self.next += 1;
        self.waiting.insert(self.next, waker);
        turn.0 = Some(self.next);
        (Poll::Pending, Wakers::default())
    }

    /// Removes the waiter. Its granted permit goes to the next waiter.
    pub fn leave(&mut self, turn: &mut Turn) -> Wakers {
        let Some(id) = turn.0.take() else { return Wakers::default() };
        if self.granted.remove(&id) {
            return self.give_back(1);
        }
        Wakers { wake: Vec::new(), dropped: self.waiting.remove(&id) }
    }

    /// Gives taken permits back.
    ///
    /// # Panics
    ///
    /// In debug builds, if fewer were taken.
    pub fn give_back(&mut self, count: usize) -> Wakers {
        debug_assert!(count <= self.used, "gives back more than was taken");
        self.used -= count;
        self.grant()
    }

    /// Grants no more permits: all waiters are woken and refused. Taken permits can still be given
    /// back.
    pub fn close(&mut self) -> Wakers {
        self.is_closed = true;
        self.used -= self.granted.len();
        self.granted.clear();
        Wakers { wake: std::mem::take(&mut self.waiting).into_values().collect(), dropped: None }
    }

    fn grant(&mut self) -> Wakers {
        let mut wakers = Wakers::default();
        while self.has_room()
            && let Some((id, waker)) = self.waiting.pop_first()
        {
            self.used += 1;
            self.granted.insert(id);
            wakers.wake.push(waker);
        }
        wakers
    }
}

impl Turn {
    /// Whether it is queued, or was granted a permit.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Wakers {
    /// Wakers to invoke.
    pub fn waking(wakers: impl IntoIterator<Item = KeptWaker>) -> Wakers {
        Wakers { wake: wakers.into_iter().collect(), dropped: None }
    }

    /// A waker to drop.
    pub fn dropping(waker: impl Into<Option<KeptWaker>>) -> Wakers {
        Wakers { wake: Vec::new(), dropped: waker.into() }
    }

    /// Both. At most one of them has a waker to drop.
    pub fn and(mut self, other: Wakers) -> Wakers {
        debug_assert!(self.dropped.is_none() || other.dropped.is_none(), "two wakers to drop");
        self.wake.extend(other.wake);
        self.dropped = self.dropped.or(other.dropped);
        self
    }

    /// Invokes and drops the wakers. Call it without a lock, because wakers are foreign code.
    pub fn run(self) {
        for waker in self.wake {
            waker.wake();
        }
        drop(self.dropped);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns")
            .field("max", &self.max)
            .field("used", &self.used)
            .field("waiting", &self.waiting.len())
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Wakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakers").field("wake", &self.wake.len()).finish_non_exhaustive()
    }
}
