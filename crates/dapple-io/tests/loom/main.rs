//! The driver's protocols in every interleaving and memory order that loom can tell apart: the
//! shipped slot, timers and ring, over a system that replaces the kernel (`dapple_io::model`).
//!
//! `RUSTFLAGS="--cfg dapple_loom" cargo test -p dapple-io --no-default-features --release --test
//! loom`
//!
//! Each model names in a comment the deliberate bugs that it was seen to catch;
//! `tests/mutations.txt` has them as patches, which `cargo xtask mutants` applies.

#![cfg(dapple_loom)]

mod duty;
mod parking;
mod readiness;
mod ring;
mod support;
mod timers;
