//! Sleeps, time limits and ticks.
//!
//! Timers are in a wheel of the worker that arms them. To arm, move or drop a timer takes constant
//! time, some tens of nanoseconds, and no lock that all workers share. A timer takes 32 bytes,
//! eight of them in the future. It never fires early: it fires in the tick (0.52 ms) after its
//! deadline. A timer dropped on the worker that armed it is removed at once. If another thread
//! drops a timer, the timer may only be marked; its worker removes it, with its waker, when it next
//! checks for due timers.
//!
//! # A clock that stands still
//!
//! A runtime with [`Config::standing_clock`](crate::Config::standing_clock), such as that of each
//! `#[dapple::test]`, has a clock of its own. It stands still while there is work, and jumps to the
//! next deadline when everything waits: an hour's sleep ends at once, at exactly its deadline, and
//! no time limit passes because a machine is slow. [`Instant::now`] reads it; everything in this
//! module and in [`event`](crate::event) uses it.
//!
//! | while | the clock |
//! |---|---|
//! | a callback or task runs or can run, or a thread is in `block_on` and does not wait | stands |
//! | a descriptor is ready, or this process has sent data to one that is still on its way | stands |
//! | a function runs on the blocking pool, an event loop of the program has a question, or a call on a file is in progress | stands; after 5 s of real time runs like the real one |
//! | a child process, or its output, is awaited | the same |
//! | there is a [`Pause`] | goes as far as [`advance`] says |
//! | otherwise | jumps to the next deadline: timers that are due then fire in the order in which they were armed |
//!
//! The clock does not see anything else outside (a thread that the program starts itself, another
//! host, a name server): it may jump before that answers. If descriptors were used since the last
//! jump, the clock waits up to 5 ms of real time. To be certain, take a [`pause`] until the answer
//! is there, or use the real clock.
//!
//! # Where it works
//!
//! Everything here panics if it is polled without a runtime that has the epoll driver, and never
//! resolves after that runtime has shut down.

mod instant;
mod interval;
mod sleep;
mod standing;
mod timeout;

pub use std::time::Duration;

pub use instant::Instant;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub(crate) use interval::{far_from_now, next_after};
pub use sleep::{Sleep, sleep, sleep_until};
pub use standing::{Advance, Pause, advance, pause};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
