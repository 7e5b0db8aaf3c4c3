//! Stages in other processes and on other machines, over HTTP/2.
//!
//! A [`Host`] runs stages that a program registers by name. A [`RemoteStage`] is one of them as a
//! `tower::Service`, so that the same operators compose local and remote stages. serde and an
//! [`Encoding`] write the messages.
//!
//! The errors distinguish the fates of a request: it was refused
//! ([`Refused`](dapple_tower::Refused)), failed, panicked, ran out of time, was never sent, or was
//! sent without a known outcome. [`Fate::of`] says of any error whether the request has run, so
//! that a caller knows whether it may send it again.
//!
//! A [`Discovery`] finds the hosts of one stage; [`Discovery::balance`] makes one service of them.
//!
//! `docs/remote.md` describes the protocol for other languages.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod backoff;
mod balanced;
mod deadline;
mod discovery;
mod encoding;
mod exchange;
mod function;
mod host;
mod peer;
mod percent;
mod replicas;
mod schema;
mod stage;
mod wire;

pub use dapple_stage::{ByFate, Fate, RemoteError};
pub use deadline::{deadline, within};
pub use discovery::{Discovery, DiscoveryError, Member, Members, Registration};
pub use encoding::{Encoding, EncodingError};
pub use host::{
    Host, HostBuilder, HostCommand, HostError, HostLimits, HostOptions, Report, Stopper, host_main, host_run,
};
pub use peer::{Peer, PeerBuilder};
pub use replicas::{RemoteReplica, RemoteReplicas};
pub use schema::schema_of;
pub use stage::{RemoteStage, ReplyFuture};
