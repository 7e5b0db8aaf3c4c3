//! The system calls of a slot: an epoll instance, and a descriptor that wakes the thread waiting in
//! it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::thread::futex;

use super::WORKERS_MAX;
use super::wait;
use crate::sync::atomic::AtomicU32;

/// See the module's text. It has no state of its own: [`super::slot`] has the state that a slot and
/// its models must keep consistent.
pub(crate) struct Poller {
    epoll: OwnedFd,
    wake_up: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &wake_up, EventData::new_u64(WAKE_UP), edge)?;
        Ok(Poller { epoll, wake_up })
    }

    /// Reports completions of a ring. Not edge-triggered: the thread that sees one takes in all
    /// completions.
    pub(super) fn watch_ring(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Reports events of the descriptor, beginning with present readiness.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data, source_flags())
    }

    /// Reports present readiness again.
    pub(super) fn rearm(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, data, source_flags())
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It fails only if the descriptor was closed without our knowledge; then there is nothing
        // to stop.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Makes the current or the next `wait` return.
    pub(super) fn wake(&self) {
        // The counter is full after 2^64 - 2 writes; then it must be emptied so that a write is an
        // edge again.
        while rustix::io::write(&self.wake_up, &1u64.to_ne_bytes()) == Err(Errno::AGAIN) {
            let _ = rustix::io::read(&self.wake_up, &mut [0; 8]);
        }
    }

    /// See [`wait::wait`].
    #[inline]
    pub(super) fn wait<'a>(
        &self,
        room: &'a mut [MaybeUninit<Event>],
        timeout: Option<Duration>,
    ) -> Result<&'a [Event], Errno> {
        wait::wait(self.epoll.as_fd(), room, timeout)
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn source_flags() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

/// The data of the wake-up descriptor; no token has it, as keys stay below 2^32 - 1.
pub(super) const WAKE_UP: u64 = u64::MAX;

/// The data of the first member's ring; those of the others follow, up to `WAKE_UP`. The slot finds
/// the completions when it turns the ring. No token has these values either.
pub(super) const COMPLETION: u64 = WAKE_UP - WORKERS_MAX as u64;

/// Sleeps until `wake_sleeper`, for at most `timeout`, or for no reason; returns at once if `word`
/// is no longer `expected`.
pub(super) fn sleep(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // Every result is a reason to poll again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref());
}

/// Wakes the thread that sleeps on `word`; the caller has changed its value before.
pub(super) fn wake_sleeper(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}
