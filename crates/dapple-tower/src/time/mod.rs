//! Time on any executor: a clock, sleeps and alarms that need no reactor.
//!
//! | place | clock | timers |
//! |---|---|---|
//! | on a worker of a Dapple runtime, or a thread that has entered one | that runtime's | that runtime's |
//! | anywhere else: tokio, smol, a bare thread in any `block_on` | the real one | timers of one separate thread, which the first timer starts |
//!
//! A runtime elsewhere in the process is not used: it may shut down while tasks wait for its
//! timers.

mod alarm;
#[cfg(dapple_shuttle)]
pub mod model;
mod sleep;
#[cfg(not(dapple_shuttle))]
mod thread;

#[cfg(test)]
mod tests;

#[cfg(dapple_shuttle)]
use self::model as thread;

pub use self::alarm::{Alarm, Ring};
#[cfg(dapple_shuttle)]
pub use self::model::now;
pub use self::sleep::Sleep;

use std::time::{Duration, Instant};

/// The current time by the clock of this thread's runtime, which may stand still in tests;
/// elsewhere by the real one.
#[cfg(not(dapple_shuttle))]
pub fn now() -> Instant {
    dapple_io::time::Instant::of_thread().map_or_else(dapple_sched::environment::now, |(now, _)| now.into_std())
}

/// The current time by the real clock, even if that of the runtime stands still.
pub fn real_now() -> Instant {
    #[cfg(not(dapple_shuttle))]
    return dapple_sched::environment::now();
    #[cfg(dapple_shuttle)]
    now()
}

/// Whether this thread's runtime has a clock that stands still.
fn stands_still() -> bool {
    dapple_io::time::Instant::of_thread().is_some_and(|(_, stands)| stands)
}

/// `now` plus `duration`, or the latest time that clocks can represent.
pub fn after(now: Instant, duration: Duration) -> Instant {
    now.checked_add(duration).unwrap_or(now + CENTURY)
}

/// Longer than any wait; clocks can represent it.
pub const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
