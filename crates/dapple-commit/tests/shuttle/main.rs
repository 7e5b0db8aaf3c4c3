//! Two-phase commit under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-commit --release --test shuttle`
//!
//! What each model was seen to catch stands in `tests/mutations.txt`.

#![cfg(dapple_shuttle)]

mod commit;
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-tower/tests/shuttle/model.rs"]
mod model;
/// Threads of the model as workers.
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;

use model::check;
