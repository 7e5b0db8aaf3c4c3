//! One service of many replicas: who gets the next request, who is out, and when one may come back.
//!
//! | part | is |
//! |---|---|
//! | [`Balancer`] | the replicas, shared: picks one for a request, and learns from the [`Picked`] how that went |
//! | [`Balance`] | the tower service of a balancer whose replicas are services |
//! | `replicas` | the choice alone, without locks and clocks, and **the table of a replica's states** |
//!
//! Replicas are given by hand ([`Balancer::insert`]), as lists ([`Balancer::set`]) or as a stream of news
//! ([`Balancer::follow`]).

mod balancer;
mod classify;
mod config;
mod future;
mod picked;
mod replicas;
mod service;
mod stats;
mod wait;
mod watch;

#[cfg(test)]
mod tests;

pub use self::balancer::Balancer;
pub use self::classify::{ByError, Classify};
pub use self::config::{Config, Load, Outcome, Probe};
pub use self::future::ResponseFuture;
pub use self::picked::Picked;
#[doc(hidden)]
pub use self::replicas::Candidate;
pub use self::service::Balance;
pub use self::stats::{ReplicaState, ReplicaStats};
pub use self::wait::Wait;
pub use self::watch::Change;
