//! Waits between attempts after failures.

use std::time::Duration;

use dapple_tower::Backoff;
use dapple_tower::random::Random;

/// Failures in a row, and the waits between them.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    backoff: Backoff,
    count: u32,
    random: Random,
}

impl Failures {
    pub(crate) fn new(first: Duration, max: Duration) -> Failures {
        Failures { backoff: Backoff::new(first, max), count: 0, random: Random::fresh() }
    }

    /// Notes a success: the next failure counts as the first.
    pub(crate) fn reset(&mut self) {
        self.count = 0;
    }

    /// Notes a failure; returns how long to wait.
    pub(crate) fn failed(&mut self) -> Duration {
        let wait = self.backoff.random_wait(self.count, &mut self.random);
        self.count = self.count.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::Failures;
    use std::time::Duration;

    #[test]
    fn waits_grow_up_to_the_longest_and_start_again() {
        let mut failures = Failures::new(Duration::from_millis(50), Duration::from_secs(2));
        for most_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            let wait = failures.failed();
            assert!(wait >= Duration::from_millis(most_ms / 2) && wait <= Duration::from_millis(most_ms), "{wait:?}");
        }
        failures.count = u32::MAX;
        assert!(failures.failed() <= Duration::from_secs(2));
        failures.reset();
        assert!(failures.failed() <= Duration::from_millis(50));
    }
}
