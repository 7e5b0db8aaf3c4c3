//! Aggregation: many sources, one destination.
//!
//! ```text
//!   source ──► [ ][ ][ ] ╮
//!   source ──► [ ]       ├──► Pump ──► any service
//!   source ──► [ ][ ]   ╯     picks when the service is ready, as late as possible
//! ```
//!
//! Aggregation of Gribble's dissertation (4.2), which also names the disciplines: FIFO, round
//! robin, priority.

mod merge;
mod pump;
mod source;

pub use self::merge::Discipline;
pub use self::pump::{Aggregate, Pump};
pub use self::source::{Response, Source};
