//! Stages: handlers behind bounded queues.
//!
//! Who touches what: [`desk`] is the queue and the line in front of it, [`door`] the same behind its lock; [`bench`] are the
//! handlers and what bounds them; [`core`] takes requests in and starts them, [`serve`] is the task that serves one call.
//! The controllers ([`width`], [`limits`], [`supervise`](crate::supervise)) are plain state machines that are told the time.

mod behind;
mod bench;
mod builder;
mod combine;
mod core;
pub(crate) mod desk;
pub(crate) mod door;
mod either;
mod error;
mod handle;
mod job;
mod limits;
mod pipeline;
mod policy;
mod replicate;
mod seat;
mod serve;
mod stats;
mod width;

pub use self::builder::StageBuilder;
pub use self::combine::{Combined, CombinedStage, Fused, Side, fuse};
pub use self::either::Either;
pub use self::error::StageError;
pub use self::handle::{Ask, Response, Stage};
pub use self::pipeline::{Overload, Pipeline, PipelineError, PipelineResponse, Then};
pub use self::policy::Load;
pub use self::replicate::{Replica, Replicated, ReplicatedResponse, Replication, Retired};
#[doc(hidden)]
pub use self::serve::message as panic_message;
pub use self::stats::{StageStats, Status};
pub use self::width::Width;
