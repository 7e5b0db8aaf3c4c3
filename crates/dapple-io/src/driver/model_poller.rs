//! The poller of a model: epoll as the slot relies on it, by the [system](crate::model) of the model.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::epoll::{Event, EventData};
use rustix::io::Errno;

use crate::model::{pass_time, system};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::yield_now;

pub(crate) struct Poller;

impl Poller {
    pub(super) fn new() -> io::Result<Poller> {
        Ok(Poller)
    }

    pub(super) fn watch_ring(&self, _fd: BorrowedFd<'_>, _data: u64) -> Result<(), Errno> {
        Ok(())
    }

    pub(super) fn watch(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        system(|system| system.watch(fd.as_raw_fd(), data.u64())).then_some(()).ok_or(Errno::EXIST)
    }

    pub(super) fn rearm(&self, fd: BorrowedFd<'_>, data: EventData) -> Result<(), Errno> {
        system(|system| system.rearm(fd.as_raw_fd(), data.u64()));
        Ok(())
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        system(|system| system.unwatch(fd.as_raw_fd()));
    }

    pub(super) fn wake(&self) {
        system(|system| system.is_woken = true);
    }

    /// A timeout passes at once, where there is nothing to report. One that a model is not to see the end of is as good as none:
    /// such a wait ends only for a reason.
    pub(super) fn wait<'a>(
        &self,
        room: &'a mut [MaybeUninit<Event>],
        timeout: Option<Duration>,
    ) -> Result<&'a [Event], Errno> {
        loop {
            let events = system(|system| system.take_events());
            if !events.is_empty() {
                room.iter_mut().zip(&events).for_each(|(place, event)| drop(place.write(*event)));
                // SAFETY: so many were written just now.
                return Ok(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), events.len()) });
            }
            match timeout {
                Some(timeout) if timeout < TIMEOUT_MAX => {
                    pass_time(timeout);
                    return Ok(&[]);
                }
                _ => yield_now(),
            }
        }
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        unreachable!("no clock stands still in a model")
    }
}

/// As the kernel's, but for a timeout, which passes as one of `wait` does. Relaxed: it orders nothing.
pub(super) fn sleep(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    while word.load(Ordering::Relaxed) == expected {
        match timeout {
            Some(timeout) if timeout < TIMEOUT_MAX => return pass_time(timeout),
            _ => yield_now(),
        }
    }
}

pub(super) fn wake_sleeper(_word: &AtomicU32) {}

pub(super) use crate::model::{COMPLETION, WAKE_UP};

const TIMEOUT_MAX: Duration = Duration::from_secs(60);
