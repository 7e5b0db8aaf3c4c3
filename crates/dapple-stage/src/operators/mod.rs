//! Composition operators of Gribble's dissertation (4.2), which put stages together.
//!
//! | operator | one to | variants |
//! |---|---|---|
//! | [`direct`] | one | best effort, at most once with retransmission, flow-controlled |
//! | [`balance`](dapple_tower::balance) | one of many | by load, power of two choices |
//! | [`aggregate`] | (many to) one | FIFO, round robin, by priority |
//! | [`broadcast`] | all | unordered, ordered per sender, by a named sequencer; each reliable or not |
//! | [`gather`] | all parts of a whole, by a time limit | partial answers |
//! | `dapple_commit` | all or none | |
//! | [`queue`] | many to many | balance and aggregation without a central node |
//!
//! Each operator takes services and is one, so all of them combine with [stages](crate::Stage),
//! remote stages and middleware. `docs/operators.md` has one table of their guarantees.

pub mod aggregate;
pub mod broadcast;
mod credits;
pub mod direct;
pub mod gather;
pub mod queue;

// The documentation tests compile and run the programs of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/operators.md")]
mod page {}
