//! A future that resolves at a deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Instant;
use crate::driver::Timer;

/// Resolves when `duration` has passed since this call; at once for zero.
///
/// Cancel safe: dropping it disarms the timer.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let start = Instant::now();
///     dapple_io::time::sleep(Duration::from_millis(5)).await;
///     assert!(start.elapsed() >= Duration::from_millis(5));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(far_from_now(duration))
}

/// Resolves at `deadline`; at once if it has passed. Cancel safe.
pub fn sleep_until(deadline: impl Into<Instant>) -> Sleep {
    Sleep { deadline: deadline.into(), timer: Timer::default() }
}

/// See [`sleep`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Timer,
}

impl Sleep {
    /// When it resolves.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Moves the deadline. The task that polled the sleep before is only woken at the new deadline if it polls it again.
    pub fn reset(&mut self, deadline: impl Into<Instant>) {
        let deadline = deadline.into();
        if deadline != self.deadline {
            self.deadline = deadline;
            self.timer.disarm();
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if Instant::now() >= deadline {
            self.timer.disarm();
            return Poll::Ready(());
        }
        if let Err(error) = self.timer.arm(deadline.into_std(), cx.waker()) {
            panic!("a timer needs a runtime: {error}");
        }
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Now plus the duration, or thirty years from now when the clock cannot express it: nobody waits longer.
pub(crate) fn far_from_now(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 24 * 3600))
}
