//! Ticks of the timer wheels.

use std::time::{Duration, Instant};

/// Counts ticks of 2^19 ns (0.52 ms) since the driver was made: timers fire in the tick that follows their deadline, so
/// they are late by half a tick on average and never early.
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { start: Instant::now() }
    }

    /// Ticks that have passed.
    pub(crate) fn tick_now(&self) -> u64 {
        nanoseconds(self.start.elapsed()) >> TICK_BITS
    }

    /// The first tick at which the deadline has passed.
    pub(crate) fn tick_at_or_after(&self, deadline: Instant) -> u64 {
        let offset = nanoseconds(deadline.saturating_duration_since(self.start));
        offset.saturating_add((1 << TICK_BITS) - 1) >> TICK_BITS
    }

    /// Time left until a tick begins.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        let offset = Duration::from_nanos(tick << TICK_BITS);
        offset.saturating_sub(self.start.elapsed())
    }
}

/// Saturates after 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const TICK_BITS: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_never_before_its_deadline() {
        let clock = Clock::start();
        for nanos in [0, 1, 524_287, 524_288, 524_289, 10_000_000_000] {
            let tick = clock.tick_at_or_after(clock.start + Duration::from_nanos(nanos));
            let begins = tick << TICK_BITS;
            assert!(begins >= nanos && begins - nanos < 1 << TICK_BITS);
        }
        assert_eq!(clock.tick_at_or_after(clock.start - Duration::from_secs(1)), 0);
    }
}
