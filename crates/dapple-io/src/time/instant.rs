//! Points in time, by the runtime's clock.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{self, Duration};

use crate::driver::{clock, current};

/// A point in time, as [`std::time::Instant`], but from the clock of the runtime, which in tests
/// may [stand still](super#a-clock-that-stands-still).
///
/// A worker reads the clock of its own runtime; another thread reads that of the runtime that it
/// has entered, or else of the oldest running one, or else the real clock. It converts from and to
/// the standard library's type, which all functions of this module take as well; that type's `now`
/// always reads the real clock.
///
/// ```
/// use std::time::Duration;
/// use dapple_io::time::Instant;
///
/// let start = Instant::now();
/// let deadline = start + Duration::from_secs(5);
/// assert_eq!(deadline - start, Duration::from_secs(5));
/// let std: std::time::Instant = deadline.into();
/// assert_eq!(Instant::from(std), deadline);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(time::Instant);

impl Instant {
    /// Now. Costs as much as the standard library's `now`, and a little more if a clock of the
    /// process stands still.
    #[inline]
    pub fn now() -> Instant {
        Instant(current::standing_now().unwrap_or_else(clock::now))
    }

    /// The current time, if the runtime's clock can stand still; `None` if it is the real one.
    /// Cheap in a process without such a clock.
    #[doc(hidden)]
    #[inline]
    pub fn standing() -> Option<Instant> {
        current::standing_now().map(Instant)
    }

    /// The current time, for code that works on any executor: by the clock of this thread's
    /// runtime, or of the one that it has entered. Also returns whether that clock can stand still.
    /// `None` if the thread has no runtime with its own timers.
    #[doc(hidden)]
    pub fn of_thread() -> Option<(Instant, bool)> {
        let standing = current::clock_of_thread()?;
        Some((Instant(standing.unwrap_or_else(clock::now)), standing.is_some()))
    }

    /// The time that has passed since then; zero if it is in the future.
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// The time since `earlier`; zero if that is later.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// The time since `earlier`; `None` if that is later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// The time since `earlier`; zero if that is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Later by `duration`; `None` if the clock cannot express that.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// Earlier by `duration`; `None` if the clock cannot express that.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }

    /// The same point, from one of the standard library.
    pub fn from_std(instant: time::Instant) -> Instant {
        Instant(instant)
    }

    /// The same point for the standard library. Under a standing clock, it is the time of that
    /// clock.
    pub fn into_std(self) -> time::Instant {
        self.0
    }
}

impl From<time::Instant> for Instant {
    fn from(instant: time::Instant) -> Instant {
        Instant(instant)
    }
}

impl From<Instant> for time::Instant {
    fn from(instant: Instant) -> time::Instant {
        instant.0
    }
}

/// Panics if the clock cannot express the sum, as the standard library's does.
impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

/// Panics if the clock cannot express the difference, as the standard library's does.
impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0 - duration)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        self.0 -= duration;
    }
}

/// As [`Instant::duration_since`].
impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}
