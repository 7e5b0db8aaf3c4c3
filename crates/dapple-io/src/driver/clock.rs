//! Deadlines as numbers, and the ticks of the timer wheels.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A clock that counts ticks of 2^19 ns (0.52 ms). Timers fire in the tick after their deadline, so
/// they are late by half a tick on average and never early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock;

impl Clock {
    /// The present tick.
    pub(crate) fn tick_now(self) -> u64 {
        nanos(now()) >> TICK_BITS
    }

    /// Time left until a tick begins.
    pub(crate) fn until(self, tick: u64) -> Duration {
        let begins = tick.saturating_mul(1 << TICK_BITS);
        Duration::from_nanos(begins.saturating_sub(nanos(now())))
    }
}

/// Now, by the system's clock; in a model by the model's.
#[inline]
pub(crate) fn now() -> Instant {
    #[cfg(dapple_loom)]
    return crate::model::now();
    #[cfg(not(dapple_loom))]
    dapple_sched::environment::now()
}

/// A point in time as nanoseconds since the epoch of this process, [`NANOS_MAX`] at most.
pub(crate) fn nanos(instant: Instant) -> u64 {
    nanos_in(instant.saturating_duration_since(*EPOCH))
}

/// The point in time of these nanoseconds.
pub(crate) fn instant(nanos: u64) -> Instant {
    *EPOCH + Duration::from_nanos(nanos)
}

/// `duration` after `nanos`, at most [`NANOS_MAX`].
pub(crate) fn nanos_after(nanos: u64, duration: Duration) -> u64 {
    nanos.saturating_add(nanos_in(duration)).min(NANOS_MAX)
}

/// The first tick at which a deadline has passed.
pub(crate) fn tick_at_or_after(nanos: u64) -> u64 {
    nanos.saturating_add((1 << TICK_BITS) - 1) >> TICK_BITS
}

fn nanos_in(duration: Duration) -> u64 {
    let seconds = duration.as_secs().min(NANOS_MAX / NANOS_PER_SECOND);
    (seconds * NANOS_PER_SECOND + u64::from(duration.subsec_nanos())).min(NANOS_MAX)
}

/// Zero of [`nanos`]: long ago, so that past deadlines stay distinct.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    let start = dapple_sched::environment::start();
    // If the clock does not reach back that far, older deadlines count as newer ones; they have
    // passed in any case.
    start.checked_sub(PAST).unwrap_or(start)
});

/// The part of the past that can be represented: some 34 years.
const PAST: Duration = Duration::from_secs(1 << 30);
/// The last deadline that can be represented: 146 years after the epoch, and so a century from now.
pub(crate) const NANOS_MAX: u64 = (1 << 62) - 1;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const TICK_BITS: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_never_before_its_deadline() {
        let start = nanos(Instant::now());
        for ahead in [0, 1, 524_287, 524_288, 524_289, 10_000_000_000] {
            let begins = tick_at_or_after(start + ahead) << TICK_BITS;
            assert!(begins >= start + ahead && begins - start - ahead < 1 << TICK_BITS);
        }
    }

    #[test]
    fn points_in_time_come_back_as_they_were() {
        let now = Instant::now();
        for at in [now, now - Duration::from_secs(10_000_000), now + Duration::from_secs(1_000_000_000)] {
            assert_eq!(instant(nanos(at)), at);
        }
        assert_eq!(nanos_after(nanos(now), Duration::MAX), NANOS_MAX);
        assert!(instant(NANOS_MAX) > now + Duration::from_secs(100 * 365 * 24 * 3600));
    }
}
