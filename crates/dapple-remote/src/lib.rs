//! Stages in other processes and on other machines, over HTTP/2.
//!
//! A [`Host`] runs stages that a program registers by name. A [`RemoteStage`] is one of them as a `tower::Service`, so that
//! what composes local stages composes remote ones. Messages are serde's, written as [`Encoding`] says.
//!
//! What can become of a request is told apart: it was refused ([`Refused`](dapple_tower::Refused)), failed, panicked, ran out of
//! time, was never sent, or was sent and nothing is known of it. [`Fate::of`] says of any error whether the request has run, which is
//! what sending it again has to know.
//!
//! Hosts of one stage are found by a [`Discovery`], and balanced as one service ([`Discovery::balance`]).
//!
//! `docs/remote.md` has the protocol, byte for byte enough for other languages.

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
