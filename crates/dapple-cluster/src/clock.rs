//! The time as records have it.

use std::time::UNIX_EPOCH;

use dapple_sched::environment::system_now;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = system_now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
