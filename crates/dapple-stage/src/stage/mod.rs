//! Stages: handlers behind bounded queues.
//!
//! [`queue`] is the queue and the waiting line in front of it; [`shared_queue`] adds its lock.
//! [`handler`] is one handler; [`handlers`] are all of them with their bounds. [`core`] takes
//! requests in and starts them; [`serve`] is the task that serves one call. The controllers
//! ([`width`], [`limits`], [`supervise`](crate::supervise)) are plain state machines that get the
//! time as an argument.

mod behind;
mod builder;
mod combine;
mod core;
mod either;
mod error;
mod handle;
mod handler;
mod handlers;
mod job;
mod limits;
mod pipeline;
mod policy;
pub(crate) mod queue;
mod replicate;
mod serve;
pub(crate) mod shared_queue;
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
