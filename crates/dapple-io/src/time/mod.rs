//! Sleeping, limits on how long something may take, and ticks.
//!
//! Timers sit in a wheel of the worker that arms them; arming and dropping one takes constant time and no lock that
//! workers share. A timer never fires early. It fires in the tick (0.52 ms) that follows its deadline.
//!
//! Everything here panics when it is polled where there is no runtime with the epoll driver, and never resolves once that
//! runtime has shut down.

mod interval;
mod sleep;
mod timeout;

pub use std::time::{Duration, Instant};

pub(crate) use interval::next_after;
pub use interval::{Interval, interval, interval_at};
pub(crate) use sleep::far_from_now;
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
