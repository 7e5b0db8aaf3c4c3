//! How slow a peer may be.

use std::time::Duration;

use dapple_io::time::Instant;

/// A peer has some time to begin with, which waiting for it uses up, and bytes give it more, up to what it had at first. Time in
/// which nobody waits for it costs it nothing.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    left: Duration,
    left_max: Duration,
    /// Bytes that are worth a second.
    rate_min: u64,
    waiting_since: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(timeout: Duration, rate_min: u64) -> Pace {
        Pace { left: timeout, left_max: timeout, rate_min: rate_min.max(1), waiting_since: None }
    }

    /// It is waited for the peer, and was already if it was so before. Returns until when.
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        after(since, self.left)
    }

    /// So many bytes moved, and it is not waited any more.
    pub(crate) fn moved(&mut self, len: usize, now: Instant) {
        self.rest(now);
        let worth = Duration::from_micros((len as u64).saturating_mul(1_000_000) / self.rate_min);
        self.left = self.left.saturating_add(worth).min(self.left_max);
    }

    /// It is not the peer that is waited for.
    pub(crate) fn rest(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(now.saturating_duration_since(since));
        }
    }
}

/// As late as the clock goes where a limit is longer than that.
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
        // Nobody waited until now.
        assert_eq!(pace.wait(begin + 20 * SECOND), begin + 28 * SECOND, "10 - 4 + 2");
        pace.moved(1 << 30, begin + 21 * SECOND);
        assert_eq!(pace.wait(begin + 30 * SECOND), begin + 40 * SECOND, "never more than at first");
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
    fn limits_without_end_are_no_panic() {
        let mut pace = Pace::new(Duration::MAX, 0);
        let now = Instant::from_std(std::time::Instant::now());
        assert!(pace.wait(now) > now);
        pace.moved(usize::MAX, now);
    }
}
