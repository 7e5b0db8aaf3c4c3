//! Many sources, one destination.
//!
//! ```text
//!   source ──► [ ][ ][ ] ╮
//!   source ──► [ ]       ├──► Pump ──► any service
//!   source ──► [ ][ ]    ╯     picks when the service is ready, so that what is next is decided as late as can be
//! ```
//!
//! Aggregation of Gribble's dissertation (4.2), which names the disciplines too: FIFO, round robin, by priority.

mod merge;
mod pump;
mod source;

pub use self::merge::Discipline;
pub use self::pump::{Aggregate, Pump};
pub use self::source::{Response, Source};
