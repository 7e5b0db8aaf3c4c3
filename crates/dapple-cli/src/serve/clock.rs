//! A clock that is cheap enough to be read for every request.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the monotonic clock, as of its last tick (at most 10 ms ago).
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// How long a page or a file handle is served without a look at the file system. A changed file is to show within one
/// second: this, the look itself, and room for one look that was given up half-way.
pub(crate) const FRESH_MS: u64 = 400;
