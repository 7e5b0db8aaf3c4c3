//! State that belongs to colors: the public types and functions for it.
//!
//! The highest module: it may import all others, and none of them imports it. Begin with `colored`;
//! then read `reading`, `when` and `set`, for several colors, and `pinned`.

mod borrow;
pub(crate) mod colored;
pub(crate) mod pinned;
pub(crate) mod reading;
pub(crate) mod set;
mod wait;
pub(crate) mod when;
