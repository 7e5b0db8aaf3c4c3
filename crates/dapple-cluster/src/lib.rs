//! vSpace for Dapple: which replicas of which service run on which machine.
//!
//! ```text
//!   a person          etcd                                     each machine
//!   ────────          ────                                     ────────────
//!   dapple cluster ─▶ services/NAME, drains/HOST
//!                     hosts/HOST          ◀── under a lease ── dapple host: registers, measures, reports
//!                     decider (a lock)    ◀── one of them ──── the decider: reads all, plans, writes under its lock
//!                     assigned/HOST/REPLICA ── watched by ───▶ the agent: starts, watches, drains processes
//!                     found/STAGE/ADDRESS ◀── when ready ───── and registers them, under the host's lease
//!                          └──── Discovery of dapple-remote, in the clients
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | what is in the store, and the writer of each record |
//! | [`mod@plan`] | **the decisions**: a pure function of the records and of the time |
//!
//! # Promises, and their limits
//!
//! - One host decides at a time: it holds a lock of etcd under its lease, and each of its writes is a transaction on the condition that it
//!   still has the lock. A host that was frozen and comes back writes nothing.
//! - A decider that dies between two writes leaves a state from which the next one plans on. No plan is kept.
//! - A host that cannot reach etcd goes on running its replicas. So a replica may run twice for a while: a service that must run alone takes a
//!   lock itself, and lets its store check the lock's token.

#![forbid(unsafe_code)]

pub mod plan;
pub mod record;

mod clock;
mod decider;
mod directory;
mod host;
mod place;
mod summary;

pub use self::decider::{Decider, Round, Term};
pub use self::directory::{ChangeError, Directory, EVENTS_MAX, Status};
pub use self::host::{Host, HostError, HostSettings};
pub use self::place::Place;
pub use self::summary::{HostRow, ReplicaRow, ServiceRow, Summary};
