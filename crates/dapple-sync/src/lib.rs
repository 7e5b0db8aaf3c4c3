//! Locks, channels, slots and groups, with which tasks, callbacks and threads wait for one another.
//!
//! [`sync`] has locks, channels and slots; [`task`] has groups of tasks, cancellation, and values
//! that a task carries.
//!
//! Nothing here needs its own runtime. A wait is a plain future, which suspends its task and not
//! its worker; a plain thread drives it with [`dapple_sched::block_on`].

#![deny(unsafe_code)]

mod switch;
pub mod sync;
pub mod task;
