//! Stages: bounded queues, admission control, composition, and tower middleware that needs no
//! reactor.
//!
//! Overload is met with a queue and a decision, not with a collapse: a stage or a layer admits,
//! delays, refuses and drops explicitly. Stages follow the design framework of S. Gribble's
//! dissertation (Berkeley, 2000; chapters 3, 7 and 10): wrap, pipeline, combine, replicate.

/// Stages in other processes and on other machines, over HTTP/2.
#[cfg(feature = "remote")]
#[doc(inline)]
pub use dapple_remote as remote;
#[doc(inline)]
pub use dapple_stage::*;
#[doc(inline)]
pub use dapple_tower::{Backoff, BoxError, Reason, Refused, admission, balance, middleware, throttle};

pub mod operators {
    //! Composition operators of Gribble's dissertation (4.2), which put stages together.
    //!
    //! | operator | one to | variants |
    //! |---|---|---|
    //! | [`direct`] | one | best effort, at most once with retransmission, flow-controlled |
    //! | [`balance`](super::balance) | one of many | by load, power of two choices |
    //! | [`aggregate`] | (many to) one | FIFO, round robin, by priority |
    //! | [`broadcast`] | all | unordered, ordered per sender, by a named sequencer; each reliable or not |
    //! | [`commit`] | all or none | |
    //! | [`queue`] | many to many | balance and aggregation without a central node |
    //!
    //! `docs/operators.md` has one table of their guarantees.

    #[doc(inline)]
    pub use dapple_commit as commit;
    #[doc(inline)]
    pub use dapple_stage::operators::{aggregate, broadcast, direct, gather, queue};
}
