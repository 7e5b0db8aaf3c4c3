//! Clocks that are cheap enough to be read for every request.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the monotonic clock, as of its last tick (at most 10 ms ago).
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// Seconds since 1970, as of the last tick.
pub(crate) fn unix_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
