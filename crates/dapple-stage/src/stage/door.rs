//! The desk behind its lock: what handles, tasks of the stage and its alarm share.
//!
//! Under the lock runs no code of users: what is taken out is dropped, and who is woken is woken, after it.

use std::task::{Context, Poll};
use std::time::Instant;

use dapple_sched::foreign::KeptWaker;
use dapple_tower::middleware::shedding;
use dapple_tower::switch::{Mutex, lock};

use super::desk::{Desk, Entry, Limits, Place, Wakes};
use crate::{Reason, Refused};

/// What is to be told after a door was shut.
#[must_use]
pub(crate) struct Shut<T> {
    entries: Vec<Entry<T>>,
    wakes: Wakes,
}

impl<T> Shut<T> {
    /// Wakes who waited for a place, and yields the requests that waited.
    pub(crate) fn told(self) -> Vec<Entry<T>> {
        self.wakes.call();
        self.entries
    }
}

/// The queue of a stage.
#[derive(Debug)]
pub(crate) struct Door<T> {
    desk: Mutex<Desk<T>>,
}

impl<T> Door<T> {
    pub(crate) fn new(limits: Limits) -> Door<T> {
        Door { desk: Mutex::new(Desk::new(limits)) }
    }

    /// See [`Desk::poll_place`]. Inside of a `Shed` nobody stands in line, and `refused` is what is said of so many that wait.
    pub(crate) fn poll_place(
        &self,
        ticket: &mut Option<u64>,
        cx: &mut Context<'_>,
        refused: impl FnOnce(usize) -> Refused,
    ) -> Poll<()> {
        let waker = KeptWaker::from(cx.waker());
        let mut desk = lock(&self.desk);
        if ticket.is_none() && !desk.has_place() && !shedding::would_wait() {
            let len = desk.len();
            drop(desk);
            shedding::decline(refused(len));
            return Poll::Pending;
        }
        let (polled, unused) = desk.poll_place(ticket, waker);
        drop(desk);
        drop(unused);
        polled
    }

    /// See [`Desk::release`].
    pub(crate) fn release(&self, ticket: &mut Option<u64>) {
        if ticket.is_some() {
            let wakes = lock(&self.desk).release(ticket);
            wakes.call();
        }
    }

    /// See [`Desk::push`].
    pub(crate) fn push(&self, ticket: &mut Option<u64>, entry: Entry<T>) -> Result<Place, (Reason, Entry<T>)> {
        let pushed = lock(&self.desk).push(ticket, entry);
        let (pushed, wakes) = match pushed {
            Ok((place, wakes)) => (Ok(place), wakes),
            Err((reason, entry, wakes)) => (Err((reason, entry)), wakes),
        };
        wakes.call();
        pushed
    }

    /// See [`Desk::take`]; whoever is to be woken is left to the caller, who has more locked.
    pub(crate) fn take(&self, max: usize, fits: impl Fn(&T, &T) -> bool) -> (Vec<(Place, Entry<T>)>, Wakes) {
        lock(&self.desk).take(max, fits)
    }

    /// See [`Desk::put_back`].
    pub(crate) fn put_back(&self, place: Place, entry: Entry<T>) -> Result<(), (Reason, Entry<T>)> {
        lock(&self.desk).put_back(place, entry)
    }

    /// See [`Desk::cancel`].
    pub(crate) fn cancel(&self, place: Place) -> Option<Entry<T>> {
        let (entry, wakes) = lock(&self.desk).cancel(place);
        wakes.call();
        entry
    }

    /// See [`Desk::expire`].
    pub(crate) fn expire(&self, now: Instant) -> Vec<Entry<T>> {
        let (expired, wakes) = lock(&self.desk).expire(now);
        wakes.call();
        expired
    }

    /// See [`Desk::shut`]; with `clear`, all that wait come back. Whoever is to be woken is left to the caller.
    pub(crate) fn shut(&self, reason: Reason, clear: bool) -> Shut<T> {
        let mut desk = lock(&self.desk);
        let wakes = desk.shut(reason);
        // Nobody is in line any more, so that clearing wakes nobody.
        let entries = if clear { desk.clear().0 } else { Vec::new() };
        Shut { entries, wakes }
    }

    /// See [`Desk::open`].
    pub(crate) fn open(&self) {
        lock(&self.desk).open();
    }

    /// Requests that wait, what they weigh, and handles that wait for a place.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        let desk = lock(&self.desk);
        (desk.len(), desk.bytes(), desk.line_len())
    }

    /// Looks at the one that will be taken next.
    pub(crate) fn first<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        lock(&self.desk).first().map(look)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.desk).len()
    }

    /// See [`Desk::deadline`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        lock(&self.desk).deadline()
    }
}
