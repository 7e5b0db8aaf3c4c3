//! Ticks at a fixed distance.

use std::time::Duration;

use super::Instant;
use super::sleep::{Sleep, sleep_until};

/// Ticks now and then every `period`.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let start = Instant::now();
///     let mut ticks = dapple_io::time::interval(Duration::from_millis(2));
///     for _ in 0..3 {
///         ticks.tick().await;
///     }
///     assert!(start.elapsed() >= Duration::from_millis(4));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
///
/// If `period` is zero.
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks at `start` and then every `period`.
///
/// # Panics
///
/// If `period` is zero.
pub fn interval_at(start: impl Into<Instant>, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval is not zero");
    Interval { period, sleep: sleep_until(start) }
}

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and returns when it was due. Ticks that passed unnoticed are skipped, not made up for: the
    /// next one keeps its place in the pattern. Cancel safe: a tick not awaited to its end is not lost.
    pub async fn tick(&mut self) -> Instant {
        (&mut self.sleep).await;
        let due = self.sleep.deadline();
        self.sleep.reset(next_after(due, self.period));
        due
    }
}

/// The first time after now that is a whole number of periods from `due`.
pub(crate) fn next_after(due: Instant, period: Duration) -> Instant {
    let late = Instant::now().saturating_duration_since(due);
    let periods_missed = late.as_nanos() / period.as_nanos();
    // A period of at least `late / u32::MAX` cannot overflow; with a smaller one the pattern begins anew.
    u32::try_from(periods_missed + 1)
        .ok()
        .and_then(|periods| period.checked_mul(periods))
        .and_then(|ahead| due.checked_add(ahead))
        .unwrap_or_else(|| far_from_now(period))
}

/// Now plus the duration, or thirty years from now when the clock cannot express it: nobody waits longer.
pub(crate) fn far_from_now(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 24 * 3600))
}
