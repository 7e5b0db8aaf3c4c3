//! Load is met with a queue and a decision, never with a collapse.
//!
//! A *stage* is a handler behind a bounded queue; what it admits, delays, refuses and drops is explicit. Whatever is
//! refused is refused early, with a typed reason and the time after which trying again makes sense ([`Refused`]).
//!
//! Stages follow the design framework of S. Gribble's dissertation (Berkeley, 2000; chapters 3, 7 and 10): wrap, pipeline,
//! combine, replicate.
//!
//! # Locks, and no `Colored`
//!
//! What a stage keeps for itself (its queue, its idle handlers, its counts) is behind locks, and not the state of a color:
//!
//! - Its handles are used from everywhere: tasks of other runtimes, plain threads, destructors. `poll_ready`, `stats` and the
//!   drop of a response have to answer on return; a `Colored` answers later, by a callback or an await, unless its color is free.
//! - A lock is held for a few lines, under which no code of a program runs: neither handlers nor wakers nor destructors.
//!
//! Colors are for the program's own work: each call of a handler runs in the color that its request has, each replica has one
//! of its own, and what handlers keep is `Colored` where they share it. Whether a color instead of the locks would be faster
//! has not been measured. The models replace the locks (`dapple_tower::switch`), and so try many orders in which they are taken.

#![forbid(unsafe_code)]

mod deadline;
mod fate;
pub mod graph;
pub mod operators;
#[cfg(dapple_shuttle)]
pub mod queue_model;
mod stage;
mod supervise;

pub use self::deadline::post_before;
pub use self::fate::{ByFate, Fate, RemoteError};
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
