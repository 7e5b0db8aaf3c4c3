//! Middleware, balance, throttles and admission under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-tower --release --test shuttle`
//!
//! What each model was seen to catch stands in `tests/mutations.txt`.

#![cfg(dapple_shuttle)]

mod balance;
mod buffer;
mod gate;
mod model;
/// Threads of the model as workers.
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;
mod throttle;

use model::{Inside, check, pause, poll_once};
