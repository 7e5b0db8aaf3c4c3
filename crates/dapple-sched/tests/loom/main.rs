//! The smallest protocols of the shipped scheduler, in every interleaving and memory order that loom can tell apart.
//!
//! `RUSTFLAGS="--cfg dapple_loom" cargo test -p dapple-sched --release --test loom`
//!
//! Each model names in a comment the deliberate bugs that it was seen to catch; `tests/mutations.txt` has them as
//! patches, which `cargo xtask mutants` applies. [`support::Log`] sees overlaps and missing order between callbacks
//! (C1), `finish` sees lost callbacks and colors that were freed twice or never.

#![cfg(dapple_loom)]

mod blocks;
mod colors;
mod light;
mod lock;
mod outside;
mod readers;
mod reading_sets;
mod requests;
mod support;
mod waits;
