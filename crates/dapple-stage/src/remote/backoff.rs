//! When to try again what failed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// Waits that double with each failure in a row, and vary so that many who wait do not come back at once.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, failures: 0 }
    }

    /// It worked: the next failure is the first again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: for how long to leave it.
    pub(crate) fn failed(&mut self) -> Duration {
        let wait = self.after_failure(random_share());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Between a half and all of the wait, by a share of 0 to 1.
    fn after_failure(&self, share: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(self.failures.min(30)));
        doubled.min(self.max).mul_f64(0.5 + share / 2.0)
    }
}

/// From 0 to 1, differently each time.
pub(crate) fn random_share() -> f64 {
    // Each state has keys of its own, counted up from random ones.
    f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        for most_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(backoff.after_failure(1.0), Duration::from_millis(most_ms));
            assert_eq!(backoff.after_failure(0.0), Duration::from_millis(most_ms / 2));
            let wait = backoff.failed();
            assert!(wait >= Duration::from_millis(most_ms / 2) && wait <= Duration::from_millis(most_ms), "{wait:?}");
        }
        backoff.failures = u32::MAX;
        assert!(backoff.failed() <= Duration::from_secs(2));
        backoff.reset();
        assert!(backoff.failed() <= Duration::from_millis(50));
    }
}
