//! A future that resolves at a deadline, on any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::thread::{self, Key};

/// Resolves at its deadline. Cancel safe: dropping it disarms the timer.
///
/// It may move between executors from poll to poll: if a Dapple runtime armed its timer and another
/// executor polls it, that one arms the timer again, so the end of the runtime cannot block it.
pub struct Sleep {
    deadline: Instant,
    timer: Timer,
}

enum Timer {
    Unarmed,
    Dapple(dapple_io::time::Sleep),
    Thread(Key),
}

impl Sleep {
    /// Resolves this long after now, by the clock of this thread.
    pub fn new(duration: Duration) -> Sleep {
        Sleep::until(super::after(super::now(), duration))
    }

    pub fn until(deadline: Instant) -> Sleep {
        Sleep { deadline, timer: Timer::Unarmed }
    }

    /// As `poll`; `None` if no timer is available now.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let here = dapple_io::time::Instant::of_thread();
        let now = here.map_or_else(super::now, |(now, _)| now.into_std());
        if now >= self.deadline {
            self.disarm();
            return Some(Poll::Ready(()));
        }
        if here.is_some() {
            if !matches!(self.timer, Timer::Dapple(_)) {
                self.disarm();
                self.timer = Timer::Dapple(dapple_io::time::sleep_until(self.deadline));
            }
            let Timer::Dapple(sleep) = &mut self.timer else { unreachable!("just set") };
            return Some(Pin::new(sleep).poll(cx));
        }
        if let Timer::Thread(key) = self.timer
            && thread::rewire(key, cx.waker())
        {
            return Some(Poll::Pending);
        }
        self.timer = Timer::Unarmed;
        let key = thread::arm(self.deadline, cx.waker().clone()).ok()?;
        self.timer = Timer::Thread(key);
        Some(Poll::Pending)
    }

    fn disarm(&mut self) {
        if let Timer::Thread(key) = std::mem::replace(&mut self.timer, Timer::Unarmed) {
            thread::disarm(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_timer(cx).unwrap_or_else(|| {
            // Without a timer it is polled until its time: slow, but correct.
            std::thread::yield_now();
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
