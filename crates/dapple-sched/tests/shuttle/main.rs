//! The whole scheduler under random schedules: workers that run, sleep, steal and stop, and all
//! their interactions with other threads. Larger than loom can search; shuttle's memory is
//! sequentially consistent.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-sched --release --test shuttle`
//!
//! Each model names in a comment the deliberate bugs that it was seen to catch;
//! `tests/mutations.txt` has them as patches, which `cargo xtask mutants` applies. A failure prints
//! its schedule, which also determines a random program: set `DAPPLE_SHUTTLE_REPLAY` to it and run
//! the same test.

#![cfg(dapple_shuttle)]

#[path = "../nested/mod.rs"]
mod nested;
mod nesting;
mod programs;
mod pulse;
mod rest;
mod scenes;
#[allow(dead_code, reason = "some of it is for the models of crates above")]
mod support;
