//! What waits in front of a stage, and who waits to put something there. A plain state machine: no lock, no clock, and the
//! wakers that it hands out are called by others.
//!
//! A place in the queue is in one of three states; their sum never exceeds the limit:
//!
//! | a place is | in | it becomes |
//! |---|---|---|
//! | free | (the limit less the others) | promised: to the first in line, or to who asks while nobody is in line |
//! | promised | `promised`, by the ticket of a handle | used by `push`; free when the handle lets go |
//! | used | `waiting` | free by `take`, `cancel`, `expire` and `shut` |
//!
//! | a ticket is | until |
//! |---|---|
//! | in `line` | a place is free and it is the first: then it is in `promised`, and its waker is called once |
//! | in `promised` | `push` uses it, or `release` gives it back, which lets the next one in |
//! | in neither | it is not known any more: the queue was shut meanwhile. Its holder asks again |
//!
//! All that frees a place goes through [`Queue::settle`], so that there is never a free place while a request is in line.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Instant;

use dapple_sched::foreign::KeptWaker;

use crate::Reason;

/// Requests that wait, in the order in which they will be taken.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    limits: Limits,
    waiting: BTreeMap<Place, Entry<T>>,
    /// Those of `waiting` that have one, the earliest first.
    deadlines: BTreeSet<(Instant, Place)>,
    /// What all of `waiting` weigh.
    bytes: usize,
    line: BTreeMap<u64, KeptWaker>,
    promised: BTreeSet<u64>,
    /// Tickets and arrivals are numbered by it.
    next: u64,
    shut: Option<Reason>,
    /// It was cleared when it was shut, and nothing comes back into it.
    is_cleared: bool,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests; 1 at least.
    pub(crate) len_max: usize,
    /// What they weigh together.
    pub(crate) bytes_max: usize,
}

/// Where a request stands: before all that rank lower, and behind all of its own rank that came earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// 255 less the rank, as the smallest goes first.
    behind: u8,
    arrival: u64,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) item: T,
    pub(crate) bytes: usize,
    pub(crate) rank: u8,
    pub(crate) deadline: Option<Instant>,
}

/// Wakers to be called and dropped when nothing is locked any more.
#[must_use = "those that may go on now are to be woken"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    called: Vec<KeptWaker>,
    /// Of a ticket that has left the line.
    dropped: Option<KeptWaker>,
}

impl Wakes {
    pub(crate) fn call(self) {
        self.called.into_iter().for_each(KeptWaker::wake);
        drop(self.dropped);
    }
}

impl<T> Queue<T> {
    pub(crate) fn new(limits: Limits) -> Queue<T> {
        Queue {
            limits,
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            line: BTreeMap::new(),
            promised: BTreeSet::new(),
            next: 0,
            shut: None,
            is_cleared: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The one that will be taken next.
    pub(crate) fn first(&self) -> Option<&T> {
        self.waiting.first_key_value().map(|(_, entry)| &entry.item)
    }

    /// How many handles wait for a place.
    pub(crate) fn line_len(&self) -> usize {
        self.line.len()
    }

    /// When the first of those that wait comes too late.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Whether who asks without a ticket is not put in line.
    pub(crate) fn has_place(&self) -> bool {
        self.shut.is_some() || (self.has_room() && self.line.is_empty())
    }

    /// Ready when `ticket` stands for a place that `push` may use, or the queue is shut, which `push` says then. Otherwise
    /// the ticket is in line, and `waker` is called when that may have changed. Also a waker to be dropped without the lock.
    pub(crate) fn poll_place(&mut self, ticket: &mut Option<u64>, waker: KeptWaker) -> (Poll<()>, Option<KeptWaker>) {
        if self.shut.is_some() {
            // The line was cleared when it was shut; a promise may be left.
            *ticket = None;
            return (Poll::Ready(()), Some(waker));
        }
        match *ticket {
            Some(id) if self.promised.contains(&id) => return (Poll::Ready(()), Some(waker)),
            Some(id) if self.line.contains_key(&id) => return (Poll::Pending, self.line.insert(id, waker)),
            _ => {}
        }
        let id = self.number();
        *ticket = Some(id);
        if self.has_room() && self.line.is_empty() {
            self.promised.insert(id);
            return (Poll::Ready(()), Some(waker));
        }
        (Poll::Pending, self.line.insert(id, waker))
    }

    /// Gives a place, or a place in line, back.
    pub(crate) fn release(&mut self, ticket: &mut Option<u64>) -> Wakes {
        let dropped = ticket.take().and_then(|id| {
            self.promised.remove(&id);
            self.line.remove(&id)
        });
        Wakes { dropped, ..self.settle() }
    }

    /// Puts a request into the queue: in the place that the ticket stands for, or in a free one that nobody waits for.
    pub(crate) fn push(
        &mut self,
        ticket: &mut Option<u64>,
        entry: Entry<T>,
    ) -> Result<(Place, Wakes), (Reason, Entry<T>, Wakes)> {
        let ticket = ticket.take();
        let promised = ticket.is_some_and(|id| self.promised.remove(&id));
        let dropped = ticket.and_then(|id| self.line.remove(&id));
        if let Some(reason) = self.refusal(promised, entry.bytes) {
            return Err((reason, entry, Wakes { dropped, ..self.settle() }));
        }
        let place = Place { behind: u8::MAX - entry.rank, arrival: self.number() };
        self.insert(place, entry);
        Ok((place, Wakes { called: Vec::new(), dropped }))
    }

    fn refusal(&self, promised: bool, bytes: usize) -> Option<Reason> {
        if let Some(reason) = &self.shut {
            return Some(reason.clone());
        }
        if !promised && (self.waiting.len() + self.promised.len() >= self.limits.len_max || !self.line.is_empty()) {
            return Some(Reason::Full { len: self.waiting.len() });
        }
        (self.bytes.saturating_add(bytes) > self.limits.bytes_max).then_some(Reason::Memory)
    }

    /// Takes the first request, and with it up to `max - 1` more that `fits` says go well with it, in their order.
    pub(crate) fn take(&mut self, max: usize, fits: impl Fn(&T, &T) -> bool) -> (Vec<(Place, Entry<T>)>, Wakes) {
        let Some((first, entry)) = self.waiting.first_key_value() else { return (Vec::new(), Wakes::default()) };
        let others = self.waiting.iter().skip(1).take(if max > 1 { LOOK_AHEAD.saturating_mul(max) } else { 0 });
        let others = others.filter(|(_, other)| fits(&entry.item, &other.item)).map(|(place, _)| *place);
        let places: Vec<Place> = std::iter::once(*first).chain(others.take(max.saturating_sub(1))).collect();
        let taken = places.into_iter().filter_map(|place| Some((place, self.remove(place)?))).collect();
        (taken, self.settle())
    }

    /// Puts what was taken back to where it stood. It counts as if it had not been taken, also above the limit, as others may
    /// have come meanwhile. `Err` gives it back where the queue has been shut.
    pub(crate) fn put_back(&mut self, place: Place, entry: Entry<T>) -> Result<(), (Reason, Entry<T>)> {
        match &self.shut {
            Some(reason) if self.is_cleared => Err((reason.clone(), entry)),
            _ => {
                self.insert(place, entry);
                Ok(())
            }
        }
    }

    /// Takes a request out that still waits.
    pub(crate) fn cancel(&mut self, place: Place) -> (Option<Entry<T>>, Wakes) {
        let entry = self.remove(place);
        (entry, self.settle())
    }

    /// Takes those out whose deadline has come.
    pub(crate) fn expire(&mut self, now: Instant) -> (Vec<Entry<T>>, Wakes) {
        let mut expired = Vec::new();
        while let Some((deadline, place)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            expired.extend(self.remove(place));
        }
        (expired, self.settle())
    }

    /// From now on nothing is taken in, for that reason. Who is in line is woken, to be told.
    pub(crate) fn shut(&mut self, reason: Reason) -> Wakes {
        self.shut = Some(reason);
        self.promised.clear();
        Wakes { called: std::mem::take(&mut self.line).into_values().collect(), dropped: None }
    }

    /// Takes requests in again.
    pub(crate) fn open(&mut self) {
        (self.shut, self.is_cleared) = (None, false);
    }

    /// Takes all out that wait, after it was shut.
    pub(crate) fn clear(&mut self) -> (Vec<Entry<T>>, Wakes) {
        self.is_cleared = self.shut.is_some();
        self.deadlines.clear();
        self.bytes = 0;
        let entries = std::mem::take(&mut self.waiting).into_values().collect();
        (entries, self.settle())
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.promised.len() < self.limits.len_max && self.bytes < self.limits.bytes_max
    }

    /// Promises the free places to those in line.
    fn settle(&mut self) -> Wakes {
        let mut wakes = Wakes::default();
        while self.has_room() {
            let Some((id, waker)) = self.line.pop_first() else { break };
            self.promised.insert(id);
            wakes.called.push(waker);
        }
        wakes
    }

    fn insert(&mut self, place: Place, entry: Entry<T>) {
        self.bytes += entry.bytes;
        if let Some(deadline) = entry.deadline {
            self.deadlines.insert((deadline, place));
        }
        self.waiting.insert(place, entry);
    }

    fn remove(&mut self, place: Place) -> Option<Entry<T>> {
        let entry = self.waiting.remove(&place)?;
        self.bytes -= entry.bytes;
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, place));
        }
        Some(entry)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// For one request of a cohort, so many are looked at.
const LOOK_AHEAD: usize = 4;

#[cfg(test)]
mod tests;
