//! Measures whether the other side is fast enough.

use std::time::Duration;

use super::clock::now_ms;
use super::limits::Limits;

/// The pace of a body in one direction, while the server waits for the client. A bucket that time
/// empties and bytes fill: it holds as much as the grace period, so the rate is an average over
/// about that time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pause_ms: u64,
    grace_ms: u64,
    /// Bytes per second; 0 is no limit.
    rate_min: u64,
    moved_ms: u64,
    paid_until_ms: u64,
    /// Bytes that do not amount to a whole millisecond yet.
    rest: u64,
    resting_since_ms: Option<u64>,
}

impl Pace {
    pub fn new(pause: Duration, grace: Duration, rate_min: u64, now_ms: u64) -> Pace {
        let (pause_ms, grace_ms) = (millis(pause), millis(grace));
        let paid_until_ms = now_ms.saturating_add(grace_ms);
        Pace { pause_ms, grace_ms, rate_min, moved_ms: now_ms, paid_until_ms, rest: 0, resting_since_ms: None }
    }

    /// Notes that `len` bytes moved.
    pub fn moved(&mut self, len: u64, now_ms: u64) {
        self.go_on(now_ms);
        self.moved_ms = now_ms;
        if self.rate_min > 0 {
            let due = len.saturating_mul(1_000).saturating_add(self.rest);
            self.rest = due % self.rate_min;
            let full_ms = now_ms.saturating_add(self.grace_ms);
            self.paid_until_ms = self.paid_until_ms.saturating_add(due / self.rate_min).min(full_ms);
        }
    }

    /// Stops the clock: from now on the connection does not wait for the client.
    pub fn rest(&mut self, now_ms: u64) {
        self.resting_since_ms.get_or_insert(now_ms);
    }

    /// Starts the clock: the connection waits for the client (again).
    pub fn go_on(&mut self, now_ms: u64) {
        if let Some(since_ms) = self.resting_since_ms.take() {
            let rested_ms = now_ms.saturating_sub(since_ms);
            self.moved_ms = self.moved_ms.saturating_add(rested_ms);
            self.paid_until_ms = self.paid_until_ms.saturating_add(rested_ms);
        }
    }

    /// When the client is too slow, if the connection waits for it.
    pub fn waits_until_ms(&self) -> Option<u64> {
        self.resting_since_ms.is_none().then(|| self.deadline_ms())
    }

    /// When the client is too slow, unless bytes move before.
    pub fn deadline_ms(&self) -> u64 {
        let pause_at_ms = self.moved_ms.saturating_add(self.pause_ms);
        if self.rate_min == 0 { pause_at_ms } else { pause_at_ms.min(self.paid_until_ms) }
    }
}

/// The pace at which a client must take a reply.
pub fn send_pace(limits: &Limits) -> Pace {
    Pace::new(limits.pause_timeout, limits.rate_grace, limits.send_rate_min, now_ms())
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    fn pace(rate_min: u64) -> Pace {
        Pace::new(Duration::from_secs(20), Duration::from_secs(10), rate_min, 1_000)
    }

    #[test]
    fn a_long_pause_is_too_slow() {
        let mut pace = pace(0);
        assert_eq!(pace.deadline_ms(), 21_000);
        pace.moved(1, 15_000);
        assert_eq!(pace.deadline_ms(), 35_000);
    }

    #[test]
    fn a_client_that_keeps_the_rate_stays() {
        let mut pace = pace(100);
        for second in 1..1_000 {
            let now_ms = 1_000 + second * 1_000;
            assert!(now_ms < pace.deadline_ms(), "after {second} s");
            pace.moved(100, now_ms);
        }
    }

    #[test]
    fn a_slower_client_is_cut_and_cannot_save_up() {
        let mut pace = pace(100);
        pace.moved(1 << 40, 2_000);
        assert_eq!(pace.deadline_ms(), 12_000);
        let mut now_ms = 2_000;
        while now_ms < pace.deadline_ms() {
            pace.moved(10, now_ms);
            now_ms += 1_000;
        }
        assert!((12_000..15_000).contains(&now_ms), "{now_ms}");
    }

    #[test]
    fn bytes_that_make_no_millisecond_add_up() {
        let mut pace = pace(10_000);
        pace.moved(0, 6_000);
        for _ in 0..10 {
            pace.moved(1, 6_000);
        }
        assert_eq!(pace.deadline_ms(), 11_001);
    }

    #[test]
    fn time_spent_waiting_for_others_does_not_count() {
        let mut pace = pace(100);
        pace.rest(2_000);
        pace.rest(3_000);
        pace.go_on(50_000);
        assert_eq!(pace.deadline_ms(), 59_000);
        pace.go_on(60_000);
        assert_eq!(pace.deadline_ms(), 59_000);
    }
}
