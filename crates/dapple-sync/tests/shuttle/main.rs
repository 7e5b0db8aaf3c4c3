//! Limits, slots and groups under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-sync --release --test shuttle`
//!
//! `DAPPLE_SHUTTLE_PERCENT` and `DAPPLE_SHUTTLE_REPLAY` are for groups, as for the models of the scheduler, whose workers they run on.

#![cfg(dapple_shuttle)]

mod group;
mod limit;
mod slot;
/// Threads of the model as workers.
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;
