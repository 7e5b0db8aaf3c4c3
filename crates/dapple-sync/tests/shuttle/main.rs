//! Limits, slots, groups and `watch` under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-sync --release --test shuttle`
//!
//! `DAPPLE_SHUTTLE_PERCENT` and `DAPPLE_SHUTTLE_REPLAY` apply to groups, as to the models of the
//! scheduler, because groups run on its workers.

#![cfg(dapple_shuttle)]

mod group;
mod limit;
mod slot;
/// Threads of the model act as workers.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;
mod watch;
