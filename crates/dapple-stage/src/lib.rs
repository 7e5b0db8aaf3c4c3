//! Stages: overload is met with a queue and a decision, not with a collapse.
//!
//! A *stage* is a handler behind a bounded queue. Its decisions to admit, delay, refuse and drop are
//! explicit. A stage refuses early, with a typed reason and the time after which a retry makes
//! sense ([`Refused`]).
//!
//! Stages follow the design framework of S. Gribble's dissertation (Berkeley, 2000; chapters 3, 7
//! and 10): wrap, pipeline, combine, replicate.
//!
//! # Locks, and no `Colored`
//!
//! A stage keeps its own state (its queue, its idle handlers, its counts) behind locks, not in the
//! state of a color:
//!
//! - Its handles are used from everywhere: tasks of other runtimes, plain threads, destructors.
//!   `poll_ready`, `stats` and the drop of a response must have taken effect on return. A `Colored`
//!   takes effect later, through a callback or an await, unless its color is free.
//! - A stage holds a lock for a few lines, and runs no code of the program under it: no handlers,
//!   wakers or destructors.
//!
//! Colors are for the program's own work: each call of a handler runs in its request's color, each
//! replica has its own color, and handlers share state in a `Colored`. Whether a color would be
//! faster than the locks has not been measured. The models replace the locks
//! (`dapple_tower::switch`), and so try many orders of locking.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod deadline;
mod fate;
pub mod graph;
mod once;
pub mod operators;
#[cfg(dapple_shuttle)]
pub mod queue_model;
mod stage;
mod supervise;

pub use self::deadline::post_before;
pub use self::fate::{ByFate, Fate, RemoteError};
pub use self::once::Once;
#[doc(hidden)]
pub use self::stage::panic_message;
pub use self::stage::{
    Ask, Combined, CombinedStage, Either, Fused, Load, Overload, Pipeline, PipelineError, PipelineResponse, Replica,
    Replicated, ReplicatedResponse, Replication, Response, Retired, Side, Stage, StageBuilder, StageError, StageStats,
    Status, Then, Width, fuse,
};
pub use self::supervise::Supervision;
#[doc(no_inline)]
pub use dapple_tower::{Backoff, BoxError, Reason, Refused};
