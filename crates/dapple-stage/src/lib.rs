//! Load is met with a queue and a decision, never with a collapse.
//!
//! A *stage* is a handler behind a bounded queue; what it admits, delays, refuses and drops is explicit. Whatever is
//! refused is refused early, with a typed reason and the time after which trying again makes sense ([`Refused`]).
//!
//! Stages follow the design framework of S. Gribble's dissertation (Berkeley, 2000; chapters 3, 7 and 10): wrap, pipeline,
//! combine, replicate.

#![forbid(unsafe_code)]

pub mod admission;
mod backoff;
pub mod balance;
mod deadline;
#[doc(hidden)]
pub mod flights;
pub mod graph;
pub mod middleware;
pub mod operators;
#[cfg(dapple_shuttle)]
pub mod queue_model;
#[doc(hidden)]
pub mod random;
mod refused;
#[cfg(feature = "remote")]
pub mod remote;
mod stage;
mod supervise;
#[doc(hidden)]
pub mod switch;
pub mod throttle;
#[doc(hidden)]
pub mod time;

pub use self::backoff::Backoff;
pub use self::deadline::post_before;
pub use self::refused::{Reason, Refused};
pub use self::stage::{
    Ask, Combined, CombinedStage, Either, Fused, Load, Overload, Pipeline, PipelineError, PipelineResponse, Replica,
    Replicated, ReplicatedResponse, Replication, Response, Retired, Side, Stage, StageBuilder, StageError, StageStats,
    Status, Then, Width, fuse,
};
pub use self::supervise::Supervision;
#[cfg(dapple_shuttle)]
pub use self::time::model as time_model;

/// What middleware fails with, as in tower: a [`Refused`], another error of this crate, or one of the service inside.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
