//! Backoff: the wait before another try.

use std::time::Duration;

use crate::random::Random;

/// Waits that double from `min` to `max`. Each is shortened at random, so that callers that failed
/// together do not return together.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2)).jitter(0.0);
/// let waits: Vec<u128> = (0..6).map(|failures| backoff.wait(failures, 0.5).as_millis()).collect();
/// assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    jitter: f64,
}

impl Backoff {
    /// From `min` to `max`, with a jitter of a half. A `max` below `min` counts as `min`.
    pub fn new(min: Duration, max: Duration) -> Backoff {
        Backoff { min, max: max.max(min), jitter: 0.5 }
    }

    /// Sets the random part of a wait: with 0 none, with 1 all of it, so that it may be anything up
    /// to its full length. Values outside count as the nearer bound.
    pub fn jitter(self, jitter: f64) -> Backoff {
        Backoff { jitter: if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) }, ..self }
    }

    /// The wait after this many earlier failures, with `random` from 0 (the longest wait) to 1 (the
    /// shortest).
    pub fn wait(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.min.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(self.max);
        let share = (1.0 - self.jitter * random).clamp(0.0, 1.0);
        if share == 1.0 {
            doubled
        } else {
            Duration::try_from_secs_f64(doubled.as_secs_f64() * share).unwrap_or(doubled)
        }
    }

    /// The longest wait.
    pub fn max(&self) -> Duration {
        self.max
    }

    #[doc(hidden)]
    pub fn random_wait(&self, failures: u32, random: &mut Random) -> Duration {
        self.wait(failures, random.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_wait_is_within_its_bounds(min in 0_u64..10_000, max in 0_u64..1_000_000, jitter in -1.0..2.0, failures in 0_u32..100, random in 0.0..1.0) {
            let backoff = Backoff::new(Duration::from_millis(min), Duration::from_millis(max)).jitter(jitter);
            let full = backoff.clone().jitter(0.0).wait(failures, random);
            let wait = backoff.wait(failures, random);
            prop_assert!(wait <= full && full <= backoff.max());
            prop_assert!(full >= Duration::from_millis(min));
            prop_assert!(backoff.clone().jitter(0.0).wait(failures + 1, random) >= full);
        }
    }

    #[test]
    fn the_largest_durations_do_not_overflow() {
        let backoff = Backoff::new(Duration::MAX / 2, Duration::MAX).jitter(0.0);
        assert_eq!(backoff.wait(u32::MAX, 0.0), Duration::MAX);
    }
}
