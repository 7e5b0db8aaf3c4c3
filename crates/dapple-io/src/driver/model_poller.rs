//! The poller of a model: epoll as far as the slot relies on it, on the model's
//! [system](crate::model).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll::{Event, EventData};
use rustix::io::Errno;

use crate::model::{pass_time, sleep_on, system};
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
        system(|system| system.wake());
    }

    /// A timeout passes at once if there is no event. A timeout too long for a model counts as
    /// none: such a wait ends only by another event.
    pub(super) fn wait<'a>(
        &self,
        room: &'a mut [MaybeUninit<Event>],
        timeout: Option<Duration>,
    ) -> Result<&'a [Event], Errno> {
        loop {
            let events = system(|system| system.take_events());
            if !events.is_empty() {
                room.iter_mut().zip(&events).for_each(|(place, event)| drop(place.write(*event)));
                // SAFETY: as many were written just now.
                return Ok(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), events.len()) });
            }
            match timeout {
                Some(timeout) if timeout < TIMEOUT_MAX => {
                    pass_time(timeout);
                    return Ok(&[]);
                }
                _ => sleep_on(),
            }
        }
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        unreachable!("no clock stands still in a model")
    }
}

/// As the kernel's, except for a timeout, which passes as in `wait`. A sleeper sleeps until it is
/// woken, even if the word changes meanwhile.
pub(super) fn sleep(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let address = ptr::from_ref(word).addr();
    // The thread is marked as asleep before it reads the word, so a waker that comes after that
    // ends the sleep. The check is a read-modify-write, which sees the newest value, as the kernel
    // does. Relaxed: it orders nothing.
    system(|system| system.fall_asleep(address));
    let timeout = match word.fetch_add(0, Ordering::Relaxed) == expected {
        true => timeout.filter(|timeout| *timeout < TIMEOUT_MAX),
        false => Some(Duration::ZERO),
    };
    if let Some(timeout) = timeout {
        pass_time(timeout);
        if !timeout.is_zero() {
            // Other threads run meanwhile.
            yield_now();
        }
        return system(|system| system.end_sleep(address));
    }
    while system(|system| system.is_asleep(address)) {
        sleep_on();
    }
}

pub(super) fn wake_sleeper(word: &AtomicU32) {
    system(|system| system.end_sleep(ptr::from_ref(word).addr()));
}

pub(super) use crate::model::{COMPLETION, WAKE_UP};

const TIMEOUT_MAX: Duration = Duration::from_secs(60);
