//! Middleware, balance, throttles and admission under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-tower --release --test shuttle`
//!
//! `tests/mutations.txt` lists the mutations that each model has caught.

#![cfg(dapple_shuttle)]

mod balance;
mod buffer;
mod gate;
mod model;
/// Threads of the model act as workers.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;
mod throttle;

use model::{Inside, check, pause, poll_once};
