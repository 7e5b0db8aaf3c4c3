//! The limit on a slow peer.

use std::time::Duration;

use dapple_io::time::Instant;

/// A peer starts with some time. Waiting for the peer uses it up, and bytes give it more, up to the
/// initial amount. Other time costs the peer nothing.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    left: Duration,
    left_max: Duration,
    /// The number of bytes that give one second.
    rate_min: u64,
    waiting_since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(timeout: Duration, rate_min: u64) -> Pace {
        Pace { left: timeout, left_max: timeout, rate_min: rate_min.max(1), waiting_since: None }
    }

    /// Notes that the server waits for the peer, possibly since earlier. Returns until when it may
    /// wait.
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        after(since, self.left)
    }

    /// Notes that `len` bytes moved, and the wait is over.
    pub(crate) fn moved(&mut self, len: usize, now: Instant) {
        self.rest(now);
        let worth = Duration::from_micros((len as u64).saturating_mul(1_000_000) / self.rate_min);
        self.left = self.left.saturating_add(worth).min(self.left_max);
    }

    /// Notes that the server does not wait for the peer.
    pub(crate) fn rest(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(now.saturating_duration_since(since));
        }
    }
}

/// Adds a duration; if the sum is later than the clock can hold, returns the latest time.
pub(crate) fn after(instant: Instant, duration: Duration) -> Instant {
    instant.checked_add(duration).unwrap_or_else(|| instant + FAR)
}

/// Ten years.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple_io::time::Instant;

    use super::Pace;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waiting_costs_and_bytes_pay() {
        let begin = Instant::from_std(std::time::Instant::now());
        let mut pace = Pace::new(10 * SECOND, 100);
        assert_eq!(pace.wait(begin), begin + 10 * SECOND);
        assert_eq!(pace.wait(begin + SECOND), begin + 10 * SECOND, "one wait");
        pace.moved(200, begin + 4 * SECOND);
        // The server did not wait until now.
        assert_eq!(pace.wait(begin + 20 * SECOND), begin + 28 * SECOND, "10 - 4 + 2");
        pace.moved(1 << 30, begin + 21 * SECOND);
        assert_eq!(pace.wait(begin + 30 * SECOND), begin + 40 * SECOND, "never more than at the start");
    }

    #[test]
    fn a_byte_now_and_then_does_not_pay() {
        let begin = Instant::from_std(std::time::Instant::now());
        let mut pace = Pace::new(10 * SECOND, 100);
        let mut now = begin;
        let mut count = 0;
        while pace.wait(now) > now + SECOND {
            now += SECOND;
            pace.moved(1, now);
            count += 1;
        }
        assert_eq!(count, 10, "a hundredth of a second for each");
    }

    #[test]
    fn endless_limits_do_not_panic() {
        let mut pace = Pace::new(Duration::MAX, 0);
        let now = Instant::from_std(std::time::Instant::now());
        assert!(pace.wait(now) > now);
        pace.moved(usize::MAX, now);
    }
}
