//! Waiting in epoll with a timeout finer than a millisecond.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;

/// Waits for events, at most for `timeout`, and returns those that fit into `room`.
///
/// `epoll_pwait2` (Linux 5.11) takes nanoseconds. If the kernel or a container refuses it, this
/// uses `epoll_wait` with the timeout rounded up, and timers are up to a millisecond later.
/// `rustix` would choose one of the two at compile time, hence our own call.
pub(crate) fn wait<'a>(
    epoll: BorrowedFd<'_>,
    room: &'a mut [MaybeUninit<Event>],
    timeout: Option<Duration>,
) -> Result<&'a [Event], Errno> {
    // A busy worker passes zero, which needs no fine clock. Relaxed: a thread that misses the
    // refusal asks again.
    if let Some(timeout) = timeout
        && !timeout.is_zero()
        && !PWAIT2_REFUSED.load(Ordering::Relaxed)
    {
        match wait_fine(epoll, room, timeout) {
            Err(Errno::NOSYS | Errno::PERM) => PWAIT2_REFUSED.store(true, Ordering::Relaxed),
            Err(error) => return Err(error),
            Ok(count) => {
                let events = room[..count].as_ptr().cast::<Event>();
                // SAFETY: the kernel has written the first `count` events of the room.
                return Ok(unsafe { std::slice::from_raw_parts(events, count) });
            }
        }
    }
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(SECONDS_MAX) as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let (events, _) = epoll::wait(epoll, room, timeout.as_ref())?;
    Ok(events)
}

/// Returns the number of events written to `room`.
fn wait_fine(epoll: BorrowedFd<'_>, room: &mut [MaybeUninit<Event>], timeout: Duration) -> Result<usize, Errno> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().min(SECONDS_MAX) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    // SAFETY: `Event` has the kernel's layout, and the kernel writes at most `room.len()` of them
    // to `room`; the timeout lives until the call returns; there is no signal mask.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            room.as_mut_ptr(),
            room.len() as libc::c_int,
            &raw const timeout,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    usize::try_from(count).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Set if the kernel does not know `epoll_pwait2` or a filter forbids it.
static PWAIT2_REFUSED: AtomicBool = AtomicBool::new(false);

/// Events that one call collects.
pub(crate) const EVENTS_MAX: usize = 256;

/// A year: longer waits are cut, at the cost of one extra wake-up at most.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    #[test]
    fn waits_as_long_as_told() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let start = Instant::now();
        let limit = Duration::from_micros(1500);
        let events = wait(epoll.as_fd(), &mut room, Some(limit)).unwrap();
        assert!(start.elapsed() >= limit);
        assert!(events.is_empty());
    }
}
