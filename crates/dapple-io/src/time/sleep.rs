//! A future that resolves at a deadline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::poll_budget;

use super::Instant;
use crate::driver::Timer;

/// Resolves when `duration` has passed since this call; at once if it is zero.
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
///
/// A sleep takes eight bytes, and 24 more once it is polled. Making and first polling it, moving it
/// and dropping it take constant time each.
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { timer: Timer::after(duration) }
}

/// Resolves at `deadline`; at once if it has passed. The latest possible deadline is a century from
/// now. Cancel safe.
#[inline]
pub fn sleep_until(deadline: impl Into<Instant>) -> Sleep {
    Sleep { timer: Timer::at(deadline.into().into_std()) }
}

/// See [`sleep`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    timer: Timer,
}

impl Sleep {
    /// The deadline.
    pub fn deadline(&self) -> Instant {
        self.timer.deadline().into()
    }

    /// Whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline()
    }

    /// Moves the deadline. If a task waits for this sleep, it is woken at the new deadline, and
    /// need not poll the sleep before. If the sleep has resolved or was about to, poll it again.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use dapple_io::time::sleep;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let mut idle = sleep(Duration::from_secs(3600));
    ///     idle.reset(Instant::now() + Duration::from_millis(2));
    ///     (&mut idle).await;
    ///     idle.reset(Instant::now() + Duration::from_millis(2));
    ///     idle.await;
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn reset(&mut self, deadline: impl Into<Instant>) {
        self.timer.reset(deadline.into().into_std());
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let has_waited = self.timer.is_armed();
        match self.timer.poll(cx.waker()) {
            // A sleep that has waited is not refused: otherwise other futures could use up the
            // budget of each poll before it.
            Ok(Poll::Ready(())) if !has_waited => poll_budget(cx),
            Ok(poll) => poll,
            Err(error) => panic!("a timer needs a runtime: {error}"),
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}
