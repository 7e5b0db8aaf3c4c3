//! A number of permits and the line of those who wait for one, without a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::task::Poll;

use dapple_sched::foreign::KeptWaker;

use super::LimitError;

/// The state machine of a [`Limit`](super::Limit), for code that keeps it under a lock of its own, beside what the permits
/// are for.
///
/// A waiter has one [`Turn`] at a time:
///
/// | the turn is | becomes | when |
/// |---|---|---|
/// | none | none | a permit is free and nobody waits: the caller has it |
/// | none | none | the line is full, or the limit closed: refused |
/// | none | waiting | otherwise |
/// | waiting | granted | a permit is given back: it counts as taken from now on, so that no newcomer overtakes |
/// | granted | none | the waiter polls, and has its permit; or [`leave`](Self::leave)s, and the next one is granted it |
/// | waiting | none | `leave` |
/// | waiting, granted | none | [`close`](Self::close): the waiter's next poll is refused |
///
/// `used` counts permits that are taken or granted. It exceeds `max` only after [`set_max`](Self::set_max) has lowered that.
/// No method wakes or drops a waker: those come back as [`Wakers`], for after the lock. Each call costs the logarithm of
/// how many wait; a permit without a wait costs a comparison.
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
/// assert!(!turns.try_take(), "it was granted to the one that waits");
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

/// A waiter's turn in the line of [`Turns`]; by default none. Whoever drops it gives it to [`Turns::leave`] first.
#[derive(Debug, Default)]
pub struct Turn(Option<u64>);

/// Wakers to be called or dropped after the lock.
#[must_use = "run it after the lock"]
#[derive(Default)]
pub struct Wakers {
    wake: Vec<KeptWaker>,
    dropped: Option<KeptWaker>,
}

impl Turns {
    /// So many permits, and a line without a bound.
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

    /// Refuses newcomers while so many wait. Those that wait already stay.
    pub fn set_waiting_max(&mut self, waiting_max: usize) {
        self.waiting_max = waiting_max;
    }

    /// How many permits there are.
    pub fn max(&self) -> usize {
        self.max
    }

    /// How many are taken, or granted to one that has not polled since.
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many wait, without those that were granted a permit.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Changes how many permits there are. Those that are taken stay taken.
    pub fn set_max(&mut self, max: usize) -> Wakers {
        self.max = max;
        self.grant()
    }

    /// Gives no permits out while it is paused, for limits of another kind beside the count.
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

    /// Takes up to `max` permits, and says how many.
    pub fn take_more(&mut self, max: usize) -> usize {
        let mut taken = 0;
        while taken < max && self.try_take() {
            taken += 1;
        }
        taken
    }

    /// Takes a permit, or keeps the waker and a turn in line.
    ///
    /// Ready with an error: the line is full, or the limit closed.
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

    /// The waiter goes. What it was granted goes to the next in line.
    pub fn leave(&mut self, turn: &mut Turn) -> Wakers {
        let Some(id) = turn.0.take() else { return Wakers::default() };
        if self.granted.remove(&id) {
            return self.give_back(1);
        }
        Wakers { wake: Vec::new(), dropped: self.waiting.remove(&id) }
    }

    /// Gives permits back that were taken.
    ///
    /// # Panics
    ///
    /// In debug builds, if fewer were taken.
    pub fn give_back(&mut self, count: usize) -> Wakers {
        debug_assert!(count <= self.used, "gives back what it never took");
        self.used -= count;
        self.grant()
    }

    /// Gives no more permits: all who wait are woken, and are refused. Permits that are taken can still be given back.
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
    /// Whether it is in a line, or was granted a permit.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Wakers {
    /// To be woken.
    pub fn waking(wakers: impl IntoIterator<Item = KeptWaker>) -> Wakers {
        Wakers { wake: wakers.into_iter().collect(), dropped: None }
    }

    /// To be dropped.
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

    /// Wakes and drops. To be called without a lock: wakers are code of others.
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
