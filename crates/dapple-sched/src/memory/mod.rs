//! Where the memory of colors and of queued callbacks comes from, and where it goes back to.
//!
//! Imports from below: `sync`. From above: the cell of a color, for `pool`, and which worker this thread is. Begin with the table in
//! `region` of what is given back when; then read `slab`, which cuts regions into slabs, and `block`, the lists of a worker. Colors
//! have slabs of their own (`pool`), and so have tasks (`task/blocks.rs`).

pub(crate) mod alive;
pub(crate) mod block;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) mod pool;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod region;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod slab;
