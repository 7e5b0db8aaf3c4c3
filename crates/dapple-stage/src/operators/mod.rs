//! How stages are put together: the composition operators of Gribble's dissertation (4.2).
//!
//! | operator | one to | variants |
//! |---|---|---|
//! | [`direct`] | one | best effort, at most once with retransmission, flow-controlled |
//! | [`balance`](dapple_tower::balance) | one of many | by load, power of two choices |
//! | [`aggregate`] | (many to) one | FIFO, round robin, by priority |
//! | [`broadcast`] | all | unordered, ordered per sender, by a named sequencer; each reliable or not |
//! | `dapple_commit` | all or none | |
//! | [`queue`] | many to many | balance and aggregation without a node in the middle |
//!
//! Each takes services and is one, so that all of them, [stages](crate::Stage), remote ones and middleware go together.
//! `docs/operators.md` has one table of what each promises.

pub mod aggregate;
pub mod broadcast;
mod credits;
pub mod direct;
pub mod queue;

// The programs of the page are compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/operators.md")]
mod page {}
