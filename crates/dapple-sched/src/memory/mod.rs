//! Where the memory of colors, tasks and queued callbacks comes from, and where it goes back to.
//!
//! Imports from below: `sync`. From above: the cell of a color, for `pool`, and which worker this thread is. Begin with `slab`, the
//! one allocator, and its table of what it is used for; then read `free_list`, what a worker keeps. `block` is that of callbacks,
//! `pool` that of colors, `task/memory` that of tasks.

pub(crate) mod alive;
pub(crate) mod block;
#[cfg_attr(
    any(dapple_loom, dapple_shuttle),
    allow(dead_code, reason = "models of tasks and colors have memory of their own")
)]
pub(crate) mod free_list;
#[cfg(dapple_loom)]
pub(crate) mod model;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) mod pool;
#[cfg_attr(
    any(dapple_loom, dapple_shuttle),
    allow(dead_code, reason = "models of tasks and colors have memory of their own")
)]
pub(crate) mod slab;
