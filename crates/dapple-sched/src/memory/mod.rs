//! The memory of colors, tasks and queued callbacks.
//!
//! Imports from below: `sync`. From above it uses the cell of a color, for `pool`, and the current
//! worker. Begin with `slab`, the one allocator, and the table of its uses; then read `free_list`,
//! for the blocks that a worker keeps. `block` is for callbacks, `pool` for colors, `task/memory`
//! for tasks.

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
