//! Stages, balance and operators under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-stage --release --test shuttle`

#![cfg(dapple_shuttle)]

mod balance;
mod operators;
mod queue;
