//! Stages and operators under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-stage --release --test shuttle`
//!
//! What each model was seen to catch stands in `tests/mutations.txt`.

#![cfg(dapple_shuttle)]

#[path = "../../../dapple-tower/tests/shuttle/model.rs"]
mod model;
mod operators;
mod queue;
mod stage;
/// Threads of the model as workers.
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;

use model::{Inside, check, pause, poll_once};
