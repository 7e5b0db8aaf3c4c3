//! The queue of a stage, and the waiting line for places in it. A plain state machine: no lock, no
//! clock; callers invoke the wakers that it returns.
//!
//! A place in the queue is in one of three states; their sum never exceeds the limit:
//!
//! | a place is | in | it becomes |
//! |---|---|---|
//! | free | (the limit less the others) | promised: to the first waiter, or to a caller while no caller is queued |
//! | promised | `promised`, by the ticket of a handle | used by `push`; free when the handle releases it |
//! | used | `waiting` | free by `take`, `cancel`, `expire` and `shut` |
//!
//! | a ticket is | until |
//! |---|---|
//! | in `line` | a place is free and it is the first: then it is in `promised`, and its waker is called once |
//! | in `promised` | `push` uses it, or `release` gives it back, which lets the next one in |
//! | in neither | (unknown: the queue was shut meanwhile) its holder asks again |
//!
//! Everything that frees a slot goes through [`Queue::settle`], so no slot is free while a ticket
//! is queued.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Instant;

use dapple_sched::foreign::KeptWaker;

use crate::Reason;

/// Waiting requests, in the order in which they will be taken.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    limits: Limits,
    waiting: BTreeMap<QueueRank, Entry<T>>,
    /// The deadlines of `waiting`, the earliest first.
    deadlines: BTreeSet<(Instant, QueueRank)>,
    /// The total weight of `waiting`.
    bytes: usize,
    line: BTreeMap<u64, KeptWaker>,
    promised: BTreeSet<u64>,
    /// The next number for a ticket or an arrival.
    next: u64,
    shut: Option<Reason>,
    /// The queue was cleared when it was shut, so nothing may be put back into it.
    is_cleared: bool,
}

/// The limits of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests, at least 1.
    pub(crate) len_max: usize,
    /// Their total weight.
    pub(crate) bytes_max: usize,
}

/// The position of a request: before all of lower rank, and after all of its own rank that came
/// earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueRank {
    /// 255 less the rank, because the smallest goes first.
    behind: u8,
    arrival: u64,
}

/// A waiting request.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) item: T,
    pub(crate) bytes: usize,
    pub(crate) rank: u8,
    pub(crate) deadline: Option<Instant>,
}

/// Wakers to invoke and to drop without any lock.
#[must_use = "dropping these loses wake-ups"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    called: Vec<KeptWaker>,
    /// The waker of a ticket that has left the line.
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

    /// The request that will be taken next.
    pub(crate) fn first(&self) -> Option<&T> {
        self.waiting.first_key_value().map(|(_, entry)| &entry.item)
    }

    /// The number of handles that wait for a place.
    pub(crate) fn line_len(&self) -> usize {
        self.line.len()
    }

    /// The earliest deadline of the waiting requests.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Whether a caller without a ticket would get a place at once.
    pub(crate) fn has_place(&self) -> bool {
        self.shut.is_some() || (self.has_room() && self.line.is_empty())
    }

    /// Ready when `ticket` has a place for `push`, or when the queue is shut, which `push` then
    /// reports. Otherwise the ticket is queued, and `waker` is invoked when that may have changed.
    /// Also returns a waker to drop without the lock.
    pub(crate) fn poll_place(&mut self, ticket: &mut Option<u64>, waker: KeptWaker) -> (Poll<()>, Option<KeptWaker>) {
        if self.shut.is_some() {
            // The line was cleared when the queue was shut; a promise may remain.
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

    /// Returns a slot, or a position in the queue.
    pub(crate) fn release(&mut self, ticket: &mut Option<u64>) -> Wakes {
        let dropped = ticket.take().and_then(|id| {
            self.promised.remove(&id);
            self.line.remove(&id)
        });
        Wakes { dropped, ..self.settle() }
    }

    /// Puts a request into the queue: into the ticket's slot, or into a free one that no ticket
    /// waits for.
    pub(crate) fn push(
        &mut self,
        ticket: &mut Option<u64>,
        entry: Entry<T>,
    ) -> Result<(QueueRank, Wakes), (Reason, Entry<T>, Wakes)> {
        let ticket = ticket.take();
        let promised = ticket.is_some_and(|id| self.promised.remove(&id));
        let dropped = ticket.and_then(|id| self.line.remove(&id));
        if let Some(reason) = self.refusal(promised, entry.bytes) {
            return Err((reason, entry, Wakes { dropped, ..self.settle() }));
        }
        let place = QueueRank { behind: u8::MAX - entry.rank, arrival: self.number() };
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

    /// Takes the first request and up to `max - 1` more that `fits` accepts, in their order.
    pub(crate) fn take(&mut self, max: usize, fits: impl Fn(&T, &T) -> bool) -> (Vec<(QueueRank, Entry<T>)>, Wakes) {
        let Some((first, entry)) = self.waiting.first_key_value() else { return (Vec::new(), Wakes::default()) };
        let others = self.waiting.iter().skip(1).take(if max > 1 { LOOK_AHEAD.saturating_mul(max) } else { 0 });
        let others = others.filter(|(_, other)| fits(&entry.item, &other.item)).map(|(place, _)| *place);
        let places: Vec<QueueRank> = std::iter::once(*first).chain(others.take(max.saturating_sub(1))).collect();
        let taken = places.into_iter().filter_map(|place| Some((place, self.remove(place)?))).collect();
        (taken, self.settle())
    }

    /// Puts a taken request back at its position, as if it had not been taken; this may exceed the
    /// limit, because others may have come meanwhile. `Err` returns it if the queue has been shut.
    pub(crate) fn put_back(&mut self, place: QueueRank, entry: Entry<T>) -> Result<(), (Reason, Entry<T>)> {
        match &self.shut {
            Some(reason) if self.is_cleared => Err((reason.clone(), entry)),
            _ => {
                self.insert(place, entry);
                Ok(())
            }
        }
    }

    /// Removes a request that still waits.
    pub(crate) fn cancel(&mut self, place: QueueRank) -> (Option<Entry<T>>, Wakes) {
        let entry = self.remove(place);
        (entry, self.settle())
    }

    /// Removes requests past their deadline.
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

    /// Takes no more requests, for this reason. Wakes the whole line, so that its tickets see it.
    pub(crate) fn shut(&mut self, reason: Reason) -> Wakes {
        self.shut = Some(reason);
        self.promised.clear();
        Wakes { called: std::mem::take(&mut self.line).into_values().collect(), dropped: None }
    }

    /// Takes requests in again.
    pub(crate) fn open(&mut self) {
        (self.shut, self.is_cleared) = (None, false);
    }

    /// Removes all waiting requests after the queue was shut.
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

    /// Promises free slots to queued tickets.
    fn settle(&mut self) -> Wakes {
        let mut wakes = Wakes::default();
        while self.has_room() {
            let Some((id, waker)) = self.line.pop_first() else { break };
            self.promised.insert(id);
            wakes.called.push(waker);
        }
        wakes
    }

    fn insert(&mut self, place: QueueRank, entry: Entry<T>) {
        self.bytes += entry.bytes;
        if let Some(deadline) = entry.deadline {
            self.deadlines.insert((deadline, place));
        }
        self.waiting.insert(place, entry);
    }

    fn remove(&mut self, place: QueueRank) -> Option<Entry<T>> {
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

/// How many entries to check for each request of a cohort.
const LOOK_AHEAD: usize = 4;

#[cfg(test)]
mod tests;
