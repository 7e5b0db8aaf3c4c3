//! The system calls of a slot: an epoll instance, and a descriptor that wakes the thread which waits in it.

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

/// See the module's text. It has no state of its own: what a slot and its models have to keep in step is in [`super::slot`].
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

    /// Reports completions of a ring. Not edge-triggered: the thread that sees it takes in all that was completed.
    pub(super) fn watch_ring(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Reports what happens on the descriptor, beginning with what is ready already.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data, source_flags())
    }

    /// Reports again what is ready now.
    pub(super) fn rearm(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, data, source_flags())
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It fails only if the descriptor was closed behind our back, and then there is nothing left to stop.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Makes the present or the next `wait` return.
    pub(super) fn wake(&self) {
        // The counter is full after 2^64 - 2 writes; then it must be emptied for a write to be an edge again.
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

/// The data of the first member's ring; those of the others follow, up to `WAKE_UP`. The slot finds what was completed when it
/// turns the ring. No token has it either.
pub(super) const COMPLETION: u64 = WAKE_UP - WORKERS_MAX as u64;

/// Sleeps until `wake_sleeper`, for `timeout` at most, or for no reason; not at all where `word` is no longer `expected`.
pub(super) fn sleep(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    // All that it can say is a reason to look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref());
}

/// Wakes the thread that sleeps on `word`, whose value has changed before.
pub(super) fn wake_sleeper(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}
