//! TCP and UDP in user space: the network stack as a part of the program (PLDI 2007, section 4.8).
//!
//! The border to what carries packets, and a link in memory.

#![forbid(unsafe_code)]

mod device;
mod pair;

pub use device::{Device, Received};
pub use pair::{LinkFaults, MemoryDevice, pair};
