//! Tables that outlive the process: typed, durable, split into partitions that are colors.
//!
//! The design, and the ways rejected, are in the crate's README.

#![forbid(unsafe_code)]

mod codec;
pub mod engine;
mod error;
mod options;

pub use codec::{decode_ordered_key, ordered_key};
pub use engine::Memory;
pub use error::{Error, OperationId, Outcome, Refusal};
pub use options::{Durability, Expect, Read, StoreOptions, TableOptions, Version, Versioned};
