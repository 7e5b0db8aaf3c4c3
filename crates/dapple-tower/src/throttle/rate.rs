//! Rates and token buckets.

use std::fmt;
use std::time::{Duration, Instant};

use crate::time::after;

/// An amount per period.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::throttle::Rate;
///
/// assert_eq!(Rate::new(60, Duration::from_secs(60)).to_string(), "60 per 60s");
/// assert_eq!(Rate::per_second(100), Rate::new(100, Duration::from_secs(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    num: u64,
    per: Duration,
}

impl Rate {
    /// `num` in each period `per`; as tower's.
    ///
    /// # Panics
    ///
    /// If either is zero.
    pub const fn new(num: u64, per: Duration) -> Rate {
        assert!(num > 0, "a rate of 0 lets nothing pass: choose at least 1");
        assert!(!per.is_zero(), "a rate needs a period above zero");
        Rate { num, per }
    }

    /// `num` in each second.
    ///
    /// # Panics
    ///
    /// If it is zero.
    pub const fn per_second(num: u64) -> Rate {
        Rate::new(num, Duration::from_secs(1))
    }

    /// The amount in each period.
    pub(crate) const fn num(self) -> u64 {
        self.num
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.num, self.per)
    }
}

/// A token bucket with the time as an argument: tokens come at a rate, up to a limit.
///
/// If an item costs more than the limit, it passes when the bucket is full, and leaves a debt that
/// must be paid off first. So long periods stay within their rate, at any cost of single items.
/// Amounts are integers: a token is the number of nanoseconds in the rate's period, and each
/// nanosecond adds the rate's number, so nothing is lost to rounding.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    fill: u128,
    token: i128,
    level: i128,
    level_max: i128,
    at: Instant,
}

impl Bucket {
    /// A full bucket with `share` of `shares` of the rate; at least one token fits.
    pub(super) fn new(rate: Rate, burst: u64, (share, shares): (u64, u64), now: Instant) -> Bucket {
        let fill = u128::from(rate.num) * u128::from(share);
        let token = i128::try_from(rate.per.as_nanos().saturating_mul(u128::from(shares))).unwrap_or(i128::MAX);
        let burst = (i128::from(burst) * i128::from(share) / i128::from(shares)).max(1);
        let level_max = token.saturating_mul(burst);
        Bucket { fill, token, level: level_max, level_max, at: now }
    }

    /// The number of tokens; negative in debt.
    #[cfg(test)]
    pub(super) fn tokens(&mut self, now: Instant) -> i128 {
        self.refill(now);
        self.level.div_euclid(self.token)
    }

    /// When this much can be taken; not after `now` if at once.
    pub(super) fn ready_at(&mut self, cost: u64, now: Instant) -> Instant {
        self.refill(now);
        let missing = self.need(cost).saturating_sub(self.level);
        if missing <= 0 {
            return now;
        }
        let wait_ns = (missing as u128).div_ceil(self.fill);
        after(now, Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    /// Takes tokens, even if they are not there.
    pub(super) fn take(&mut self, cost: u64) {
        self.level = self.level.saturating_sub(self.price(cost)).max(i128::MIN / 2);
    }

    /// Gives back unused tokens.
    pub(super) fn put_back(&mut self, cost: u64) {
        self.level = self.level.saturating_add(self.price(cost)).min(self.level_max);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        self.at = self.at.max(now);
        let more = i128::try_from(passed.saturating_mul(self.fill)).unwrap_or(i128::MAX);
        self.level = self.level.saturating_add(more).min(self.level_max);
    }

    fn price(&self, cost: u64) -> i128 {
        self.token.saturating_mul(i128::from(cost))
    }

    fn need(&self, cost: u64) -> i128 {
        self.price(cost).min(self.level_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate::per_second(10), 3, (1, 1), start);
        for _ in 0..3 {
            assert_eq!(bucket.ready_at(1, start), start);
            bucket.take(1);
        }
        assert_eq!(bucket.ready_at(1, start), start + SECOND / 10);
        assert_eq!(bucket.ready_at(2, start), start + SECOND / 5);
        assert_eq!(bucket.tokens(start + 3_600 * SECOND), 3);
    }

    #[test]
    fn what_is_too_large_goes_when_it_is_full_and_is_paid_for_later() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate::per_second(1), 2, (1, 1), start);
        assert_eq!(bucket.ready_at(10, start), start);
        bucket.take(10);
        assert_eq!(bucket.ready_at(1, start), start + 9 * SECOND);
        bucket.put_back(10);
        assert_eq!(bucket.tokens(start), 2);
    }

    proptest! {
        /// In any period no more passes than the burst, the rate and one item.
        #[test]
        fn no_more_passes_than_the_rate(
            num in 1_u64..1_000_000, per_ms in 1_u64..10_000, burst in 1_u64..1_000,
            costs in proptest::collection::vec((0_u64..2_000, 0_u64..3_000), 1..100),
        ) {
            let start = Instant::now();
            let per = Duration::from_millis(per_ms);
            let mut bucket = Bucket::new(Rate::new(num, per), burst, (1, 1), start);
            let (mut now, mut passed, mut largest) = (start, 0_u128, 0);
            for (cost, wait_us) in costs {
                now += Duration::from_micros(wait_us);
                let ready = bucket.ready_at(cost, now);
                prop_assert!(ready >= now);
                if ready > now {
                    prop_assert!(bucket.clone().ready_at(cost, ready - Duration::from_nanos(1)) > ready - Duration::from_nanos(1));
                    prop_assert_eq!(bucket.clone().ready_at(cost, ready), ready);
                }
                now = ready;
                bucket.ready_at(cost, now);
                bucket.take(cost);
                largest = largest.max(cost);
                passed += u128::from(cost);
                let rated = (now - start).as_nanos() * u128::from(num) / per.as_nanos();
                prop_assert!(passed <= rated + u128::from(burst) + u128::from(largest) + 1);
            }
        }

        #[test]
        fn the_largest_numbers_do_not_overflow(
            cost in any::<u64>(), burst in any::<u64>(), num in 1_u64.., share in 1_u64..=u32::MAX.into(),
            per in prop_oneof![Just(Duration::from_secs(1_000_000)), Just(Duration::MAX)],
            shares in prop_oneof![Just(u64::from(u32::MAX)), Just(u64::MAX)],
        ) {
            let now = Instant::now();
            let mut bucket = Bucket::new(Rate::new(num, per), burst, (share, shares), now);
            for _ in 0..4 {
                bucket.take(cost);
                bucket.ready_at(cost, now + SECOND);
                bucket.put_back(cost / 2);
            }
        }
    }
}
