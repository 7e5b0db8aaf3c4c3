//! Two-phase commit under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-commit --release --test shuttle`
//!
//! `tests/mutations.txt` lists the mutations that each model has caught.

#![cfg(dapple_shuttle)]

mod commit;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../dapple-tower/tests/shuttle/model.rs"]
mod model;
/// Threads of the model act as workers.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;

use model::check;
