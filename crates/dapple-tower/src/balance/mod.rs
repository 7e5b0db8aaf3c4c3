//! One service of many replicas: the next replica for a request, and the health of each.
//!
//! | part | role |
//! |---|---|
//! | [`Balancer`] | the shared replicas: picks one for a request, and learns its outcome from the [`Picked`] |
//! | [`Balance`] | the tower service of a balancer of services |
//! | `replicas` | the choice, without locks and clocks, and **the table of a replica's states** |
//!
//! Replicas come by hand ([`Balancer::insert`]), as lists ([`Balancer::set`]) or as a stream of
//! changes ([`Balancer::follow`]).

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
