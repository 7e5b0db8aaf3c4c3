//! Ticks at equal distances.

use std::time::Duration;

use super::Instant;
use super::sleep::{Sleep, sleep_until};

/// Ticks at once and then every `period`.
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
    Interval { period, missed: MissedTickBehavior::default(), sleep: sleep_until(start) }
}

/// The times of the ticks that follow a late one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// All missed ticks come at once, one after the other, until the interval has caught up.
    /// tokio's default.
    Burst,
    /// If a tick was more than 5 ms late, the next one comes one period after it was returned, and
    /// the pattern shifts.
    Delay,
    /// Missed ticks are left out, and the next one keeps its place in the pattern.
    #[default]
    Skip,
}

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    missed: MissedTickBehavior,
    sleep: Sleep,
}

impl Interval {
    /// Waits for the next tick and returns its due time. After a late tick the next comes as
    /// [`MissedTickBehavior`] says; by default, missed ticks are left out. Cancel safe: dropping it
    /// loses no tick.
    pub async fn tick(&mut self) -> Instant {
        (&mut self.sleep).await;
        let due = self.sleep.deadline();
        let next = match self.missed {
            MissedTickBehavior::Burst => later(due, self.period),
            MissedTickBehavior::Delay if due.elapsed() > LATE_MIN => far_from_now(self.period),
            MissedTickBehavior::Delay => later(due, self.period),
            MissedTickBehavior::Skip => next_after(due, self.period),
        };
        self.sleep.reset(next);
        due
    }

    /// Sets the times of the ticks after a late one.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use dapple_io::time::{MissedTickBehavior, interval, sleep};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let period = Duration::from_millis(2);
    ///     let mut ticks = interval(period);
    ///     ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ///     let first = ticks.tick().await;
    ///     sleep(5 * period).await;
    ///     // None is left out.
    ///     assert_eq!(ticks.tick().await, first + period);
    ///     assert_eq!(ticks.tick().await, first + 2 * period);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// The times of the ticks that follow a late one.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// The time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// The first time after now that is a whole number of periods from `due`.
pub(crate) fn next_after(due: Instant, period: Duration) -> Instant {
    let late = Instant::now().saturating_duration_since(due);
    let periods_missed = late.as_nanos() / period.as_nanos();
    // If the period is at least `late / u32::MAX`, this cannot overflow; otherwise the pattern
    // starts again.
    u32::try_from(periods_missed + 1)
        .ok()
        .and_then(|periods| period.checked_mul(periods))
        .and_then(|ahead| due.checked_add(ahead))
        .unwrap_or_else(|| far_from_now(period))
}

/// A time plus the duration; a distant time if the clock cannot express that.
fn later(due: Instant, period: Duration) -> Instant {
    due.checked_add(period).unwrap_or_else(|| far_from_now(period))
}

/// A tick that is late by less than this does not shift the pattern, as in tokio: wake-ups are
/// never exact.
const LATE_MIN: Duration = Duration::from_millis(5);

/// Now plus the duration, or thirty years from now if the clock cannot express it: no program waits
/// longer.
pub(crate) fn far_from_now(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 24 * 3600))
}
