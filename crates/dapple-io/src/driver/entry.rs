//! The kernel's last report about one descriptor, and its waiters.
//!
//! The word `readiness` holds the flags and, above them, a count of events. An operation without a
//! result may clear a flag only if the count is still the one that it saw, so an event in between
//! is never lost.
//!
//! | actor | action |
//! |---|---|
//! | dispatch | sets flags and raises the count, then takes and wakes the waiters |
//! | a waiter | stores its waker under the lock, then reads the flags again |
//! | an operation that would block | clears the flags of its direction, if the count is unchanged |
//! | deregistration, shutdown | sets `CLOSED`, then takes the waiters |

use std::task::{Context, Poll, RawWakerVTable};

use dapple_sched::TaskWait;
use dapple_sched::foreign::KeptWaker;
use rustix::event::epoll::EventFlags;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The two kinds of readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The place of a waker.
pub(crate) enum Waiter<'a> {
    /// The single slot of the `poll_*` methods: only the last caller is woken.
    Poller,
    /// A separate slot, named by the number; its owner frees it with [`Entry::forget`].
    Listed(&'a mut Option<u64>),
}

/// Readiness at one reading: an operation that would block clears it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting(u64);

/// The runtime of this descriptor has shut down, or the descriptor was deregistered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// One registered descriptor.
pub(crate) struct Entry {
    readiness: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    read: Waitlist,
    write: Waitlist,
    next_id: u64,
}

#[derive(Default)]
struct Waitlist {
    poller: Option<KeptWaker>,
    listed: Vec<(u64, KeptWaker)>,
}

impl Entry {
    /// An entry that counts as ready in the given directions until an operation finds otherwise. A
    /// new connection can be written at once and often has data, so this saves a round through
    /// epoll.
    pub(crate) fn new(readable: bool, writable: bool) -> Self {
        let mut flags = 0;
        if readable {
            flags |= READABLE;
        }
        if writable {
            flags |= WRITABLE;
        }
        Entry { readiness: AtomicU64::new(flags), waiters: Mutex::default() }
    }

    /// Ready if the descriptor may be ready; otherwise keeps the waker until it is.
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        waiter: Waiter<'_>,
    ) -> Poll<Result<Sighting, Closed>> {
        if let Some(seen) = self.look(direction) {
            return Poll::Ready(seen);
        }
        let waker = KeptWaker::from(cx.waker());
        let mut waiters = self.waiters.lock();
        let replaced = waiters.keep(waker, direction, waiter);
        // Under the lock: a dispatch that took the waiters before this one was stored has released
        // the lock since, so its flags are visible here; a later one finds the waker.
        let seen = self.look(direction);
        drop(waiters);
        drop(replaced);
        seen.map_or(Poll::Pending, Poll::Ready)
    }

    /// As [`dapple_sched::Driver::each_waiter`].
    pub(super) fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        let waiters = self.waiters.lock();
        for (list, wait) in [(&waiters.read, TaskWait::Readable), (&waiters.write, TaskWait::Writable)] {
            let wakers = list.poller.iter().chain(list.listed.iter().map(|(_, waker)| waker));
            wakers.for_each(|waker| visit(waker.vtable(), waker.data(), wait));
        }
    }

    /// The readiness known now, without waiting.
    pub(crate) fn look(&self, direction: Direction) -> Option<Result<Sighting, Closed>> {
        // Acquire pairs with the release in `dispatch` and `close`.
        let state = self.readiness.load(Ordering::Acquire);
        if state & CLOSED != 0 {
            return Some(Err(Closed));
        }
        (state & direction.mask() != 0).then_some(Ok(Sighting(state)))
    }

    /// Notes that the operation would have blocked: not ready, unless an event arrived since the
    /// reading.
    pub(crate) fn clear(&self, sighting: Sighting, direction: Direction) {
        self.clear_flags(sighting, direction.mask());
    }

    /// Notes that the kernel did less than requested, so it has no more for now. If the end of the
    /// stream was already reported, the next operation still sees it.
    pub(crate) fn clear_partly(&self, sighting: Sighting, direction: Direction) {
        let flag = match direction {
            Direction::Read => READABLE,
            Direction::Write => WRITABLE,
        };
        self.clear_flags(sighting, flag);
    }

    fn clear_flags(&self, sighting: Sighting, flags: u64) {
        // As in `dispatch`; it only matters that no event has arrived since the flag was read.
        let _ = self.readiness.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state / EVENT == sighting.0 / EVENT && state & flags != 0).then_some(state & !flags)
        });
    }

    /// Whether a task waits to read.
    pub(crate) fn is_awaited(&self) -> bool {
        let waiters = self.waiters.lock();
        waiters.read.poller.is_some() || !waiters.read.listed.is_empty()
    }

    /// Number of events so far.
    pub(crate) fn event_count(&self) -> u64 {
        // Acquire, as everywhere here.
        self.readiness.load(Ordering::Acquire) / EVENT
    }

    /// Frees a place in the list.
    pub(crate) fn forget(&self, direction: Direction, id: u64) {
        let mut waiters = self.waiters.lock();
        let listed = &mut waiters.list(direction).listed;
        if let Some(position) = listed.iter().position(|(listed, _)| *listed == id) {
            let waker = listed.swap_remove(position);
            drop(waiters);
            drop(waker);
        }
    }

    /// Takes in an event of epoll, and wakes its waiters.
    pub(crate) fn dispatch(&self, events: EventFlags) {
        let flags = flags_of(events);
        // Release pairs with `look`: everything before the event is passed on.
        let _ = self
            .readiness
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(state.wrapping_add(EVENT) | flags));
        self.wake(flags & READ_ANY != 0, flags & WRITE_ANY != 0);
    }

    /// Wakes all waiters: no event will come any more.
    pub(crate) fn close(&self) {
        // Release pairs with `look`.
        self.readiness.fetch_or(CLOSED, Ordering::AcqRel);
        self.wake(true, true);
    }

    fn wake(&self, read: bool, write: bool) {
        let (read, write) = {
            let mut waiters = self.waiters.lock();
            let take = |list: &mut Waitlist, wanted: bool| match wanted {
                true => std::mem::take(list),
                false => Waitlist::default(),
            };
            let waiters = &mut *waiters;
            (take(&mut waiters.read, read), take(&mut waiters.write, write))
        };
        read.wake();
        write.wake();
    }
}

impl Waiters {
    fn list(&mut self, direction: Direction) -> &mut Waitlist {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// Returns the replaced waker, for the caller to drop after the lock.
    fn keep(&mut self, waker: KeptWaker, direction: Direction, waiter: Waiter<'_>) -> Option<KeptWaker> {
        let next_id = self.next_id;
        let list = self.list(direction);
        match waiter {
            Waiter::Poller => list.poller.replace(waker),
            Waiter::Listed(id) => {
                let kept = list.listed.iter_mut().find(|(kept, _)| Some(*kept) == *id);
                if let Some((_, kept)) = kept {
                    return Some(std::mem::replace(kept, waker));
                }
                list.listed.push((next_id, waker));
                *id = Some(next_id);
                self.next_id += 1;
                None
            }
        }
    }
}

impl Waitlist {
    fn wake(self) {
        self.poller.into_iter().for_each(KeptWaker::wake);
        self.listed.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Direction {
    /// The flags that let an operation of this direction try.
    fn mask(self) -> u64 {
        match self {
            Direction::Read => READ_ANY,
            Direction::Write => WRITE_ANY,
        }
    }
}

fn flags_of(events: EventFlags) -> u64 {
    let mut flags = 0;
    if events.intersects(EventFlags::IN | EventFlags::PRI) {
        flags |= READABLE;
    }
    if events.contains(EventFlags::OUT) {
        flags |= WRITABLE;
    }
    if events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
        flags |= READ_END;
    }
    if events.intersects(EventFlags::HUP | EventFlags::ERR) {
        flags |= WRITE_END;
    }
    flags
}

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
/// The peer ended the stream, or there is an error: a read does not block.
const READ_END: u64 = 4;
/// The peer has ended, or there is an error: a write does not block.
const WRITE_END: u64 = 8;
const CLOSED: u64 = 16;
const READ_ANY: u64 = READABLE | READ_END;
const WRITE_ANY: u64 = WRITABLE | WRITE_END;
/// One event in the count above the flags.
const EVENT: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_during_an_operation_is_not_lost() {
        let entry = Entry::new(true, false);
        let sighting = entry.look(Direction::Read).unwrap().unwrap();
        entry.dispatch(EventFlags::IN);
        entry.clear(sighting, Direction::Read);
        let sighting = entry.look(Direction::Read).unwrap().unwrap();
        entry.clear(sighting, Direction::Read);
        assert!(entry.look(Direction::Read).is_none());
    }

    #[test]
    fn a_short_read_keeps_the_end_of_the_stream() {
        let entry = Entry::new(false, true);
        entry.dispatch(EventFlags::IN | EventFlags::RDHUP);
        let sighting = entry.look(Direction::Read).unwrap().unwrap();
        entry.clear_partly(sighting, Direction::Read);
        assert!(entry.look(Direction::Read).is_some());
        assert!(entry.look(Direction::Write).is_some(), "not touched");
    }
}
