//! Limits on a stage's rate and on its share of the workers' time: two token buckets that refill
//! with time.
//!
//! Because of them a stage cannot starve others (Gribble, 10.1.2): excess work waits in the stage's
//! own queue.

use std::time::{Duration, Instant};

/// A token bucket: a rate per second, and a burst. `f64` is exact enough, because a bucket never
/// holds more than its burst.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    level: f64,
    filled: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(per_second: f64, burst: f64) -> Bucket {
        Bucket { per_second, burst, level: burst, filled: None }
    }

    /// `count` in each `per`, with a burst of at most `count`.
    pub(crate) fn of_rate(count: u32, per: Duration) -> Bucket {
        let count = f64::from(count.max(1));
        Bucket::new(count / per.as_secs_f64().max(1e-9), count)
    }

    /// A share of the time of `workers`, in seconds, with a burst of a tenth of a second of it.
    pub(crate) fn of_share(share: f64, workers: usize) -> Bucket {
        let per_second = share.clamp(0.001, 1.0) * workers as f64;
        Bucket::new(per_second, per_second * SHARE_BURST_S)
    }

    fn fill(&mut self, now: Instant) {
        let since = self.filled.map_or(Duration::ZERO, |filled| now.saturating_duration_since(filled));
        self.level = (self.level + since.as_secs_f64() * self.per_second).min(self.burst);
        self.filled = Some(now);
    }

    /// Whether `need` is available; otherwise when it will be.
    pub(crate) fn look(&mut self, now: Instant, need: f64) -> Result<(), Instant> {
        self.fill(now);
        // Refilling accumulates rounding errors.
        let missing = need.min(self.burst) - self.level - 1e-9;
        if missing <= 0.0 {
            return Ok(());
        }
        let wait = Duration::from_secs_f64((missing / self.per_second).min(WAIT_MAX_S));
        Err(now + wait.max(Duration::from_micros(1)))
    }

    /// The number of whole tokens, at least 1 after a successful look.
    pub(crate) fn whole(&self) -> usize {
        (self.level + 1e-9).max(1.0) as usize
    }

    /// Takes `amount`, even if less is available; later calls wait for the debt.
    pub(crate) fn take(&mut self, amount: f64) {
        self.level -= amount;
    }
}

/// Measures the workers' time that handlers take.
pub(crate) trait Throttle: Send + Sync {
    /// Whether a handler may continue; otherwise when.
    fn look(&self) -> Result<(), Instant>;

    /// Records the time that a handler took.
    fn took(&self, time: Duration);
}

/// How much of a share may accumulate.
const SHARE_BURST_S: f64 = 0.1;
/// No wait is longer than this.
const WAIT_MAX_S: f64 = 3_600.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rate_is_kept_after_its_burst() {
        let mut bucket = Bucket::of_rate(10, Duration::from_secs(1));
        let start = Instant::now();
        let mut now = start;
        let mut times = Vec::new();
        while times.len() < 31 {
            match bucket.look(now, 1.0) {
                Ok(()) => {
                    bucket.take(1.0);
                    times.push(now - start);
                }
                Err(later) => now = later,
            }
        }
        assert!(times[..10].iter().all(Duration::is_zero));
        for (n, time) in times.iter().enumerate().skip(10) {
            let expected = (n - 9) as f64 * 0.1;
            assert!((time.as_secs_f64() - expected).abs() < 0.001, "{n}: {time:?}");
        }
    }

    #[test]
    fn a_debt_of_worker_time_is_paid_by_waiting() {
        let mut bucket = Bucket::of_share(0.25, 2);
        let now = Instant::now();
        assert!(bucket.look(now, 0.0).is_ok());
        bucket.take(1.05); // of an accumulated 0.05
        let free = bucket.look(now, 0.0).unwrap_err();
        assert!((free - now).as_secs_f64() > 1.99 && (free - now).as_secs_f64() < 2.01);
    }

    proptest! {
        // In any period from the start, the bucket gives no more than the burst and the amount for
        // the time.
        #[test]
        fn never_more_than_the_rate(count in 1u32..50, steps in prop::collection::vec(0u64..300, 1..200)) {
            let mut bucket = Bucket::of_rate(count, Duration::from_millis(500));
            let start = Instant::now();
            let (mut now, mut taken) = (start, 0u32);
            for step in steps {
                now += Duration::from_millis(step);
                while bucket.look(now, 1.0).is_ok() {
                    bucket.take(1.0);
                    taken += 1;
                }
                let allowed = f64::from(count) * (1.0 + (now - start).as_secs_f64() / 0.5);
                prop_assert!(f64::from(taken) <= allowed + 1e-6, "{taken} of {allowed}");
            }
        }
    }
}
