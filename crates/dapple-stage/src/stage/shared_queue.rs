//! The queue with its lock, shared by the handles, tasks and alarm of a stage.
//!
//! No user code runs under the lock: removed entries are dropped, and wakers invoked, after it.

use std::task::{Context, Poll};
use std::time::Instant;

use dapple_sched::foreign::KeptWaker;
use dapple_tower::middleware::shedding;
use dapple_tower::switch::{Mutex, lock};

use super::queue::{Entry, Limits, Queue, QueueRank, Wakes};
use crate::{Reason, Refused};

/// The requests and waiters to notify after a queue was shut.
#[must_use]
pub(crate) struct Shut<T> {
    entries: Vec<Entry<T>>,
    wakes: Wakes,
}

impl<T> Shut<T> {
    /// Wakes the waiting line, and returns the requests that waited.
    pub(crate) fn told(self) -> Vec<Entry<T>> {
        self.wakes.call();
        self.entries
    }
}

/// The queue of a stage.
#[derive(Debug)]
pub(crate) struct SharedQueue<T> {
    queue: Mutex<Queue<T>>,
}

impl<T> SharedQueue<T> {
    pub(crate) fn new(limits: Limits) -> SharedQueue<T> {
        SharedQueue { queue: Mutex::new(Queue::new(limits)) }
    }

    /// See [`Queue::poll_place`]. Inside a `Shed` no caller enters the waiting line; `refused`
    /// makes the refusal for that queue length.
    pub(crate) fn poll_place(
        &self,
        ticket: &mut Option<u64>,
        cx: &mut Context<'_>,
        refused: impl FnOnce(usize) -> Refused,
    ) -> Poll<()> {
        let waker = KeptWaker::from(cx.waker());
        let mut queue = lock(&self.queue);
        if ticket.is_none() && !queue.has_place() && !shedding::would_wait() {
            let len = queue.len();
            drop(queue);
            shedding::decline(refused(len));
            return Poll::Pending;
        }
        let (polled, unused) = queue.poll_place(ticket, waker);
        drop(queue);
        drop(unused);
        polled
    }

    /// See [`Queue::release`].
    pub(crate) fn release(&self, ticket: &mut Option<u64>) {
        if ticket.is_some() {
            let wakes = lock(&self.queue).release(ticket);
            wakes.call();
        }
    }

    /// See [`Queue::push`].
    pub(crate) fn push(&self, ticket: &mut Option<u64>, entry: Entry<T>) -> Result<QueueRank, (Reason, Entry<T>)> {
        let pushed = lock(&self.queue).push(ticket, entry);
        let (pushed, wakes) = match pushed {
            Ok((place, wakes)) => (Ok(place), wakes),
            Err((reason, entry, wakes)) => (Err((reason, entry)), wakes),
        };
        wakes.call();
        pushed
    }

    /// See [`Queue::take`]. The caller, which holds another lock, invokes the wakers.
    pub(crate) fn take(&self, max: usize, fits: impl Fn(&T, &T) -> bool) -> (Vec<(QueueRank, Entry<T>)>, Wakes) {
        lock(&self.queue).take(max, fits)
    }

    /// See [`Queue::put_back`].
    pub(crate) fn put_back(&self, place: QueueRank, entry: Entry<T>) -> Result<(), (Reason, Entry<T>)> {
        lock(&self.queue).put_back(place, entry)
    }

    /// See [`Queue::cancel`].
    pub(crate) fn cancel(&self, place: QueueRank) -> Option<Entry<T>> {
        let (entry, wakes) = lock(&self.queue).cancel(place);
        wakes.call();
        entry
    }

    /// See [`Queue::expire`].
    pub(crate) fn expire(&self, now: Instant) -> Vec<Entry<T>> {
        let (expired, wakes) = lock(&self.queue).expire(now);
        wakes.call();
        expired
    }

    /// See [`Queue::shut`]; with `clear`, returns all waiting requests. The caller invokes the
    /// wakers.
    pub(crate) fn shut(&self, reason: Reason, clear: bool) -> Shut<T> {
        let mut queue = lock(&self.queue);
        let wakes = queue.shut(reason);
        // The line is already empty, so clearing wakes no ticket.
        let entries = if clear { queue.clear().0 } else { Vec::new() };
        Shut { entries, wakes }
    }

    /// See [`Queue::open`].
    pub(crate) fn open(&self) {
        lock(&self.queue).open();
    }

    /// Waiting requests, their weight, and handles that wait for a place.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        let queue = lock(&self.queue);
        (queue.len(), queue.bytes(), queue.line_len())
    }

    /// Looks at the request that will be taken next.
    pub(crate) fn first<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        lock(&self.queue).first().map(look)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.queue).len()
    }

    /// See [`Queue::deadline`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        lock(&self.queue).deadline()
    }
}
