//! Load is met with a queue and a decision, never with a collapse.
//!
//! A *stage* is a handler behind a bounded queue; what it admits, delays, refuses and drops is explicit. Whatever is
//! refused is refused early, with a typed reason and the time after which trying again makes sense ([`Refused`]).
//!
//! Stages follow the design framework of S. Gribble's dissertation (Berkeley, 2000; chapters 3, 7 and 10): wrap, pipeline,
//! combine, replicate.

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
