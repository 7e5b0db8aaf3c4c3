//! What `serve` and `proxy` share of being a server: listening sockets, who may connect, signals, and the end.

mod accept;
mod admission;
mod args;
mod descriptors;
mod ebb;
mod end;
mod error;
mod gate;
mod handover;
mod link;
mod listening;
mod manager;
mod memory;
mod port_owner;
mod signals;
mod stage;
mod tls;
mod upgrade;
mod watch;

pub(crate) use self::accept::Host;
#[cfg(test)]
pub(crate) use self::admission::PerAddress;
pub(crate) use self::admission::{Admission, Place, Refusal, client_key};
pub(crate) use self::args::AdmissionArgs;
#[cfg(test)]
pub(crate) use self::descriptors::FILES_MAX;
pub(crate) use self::ebb::give_back;
pub(crate) use self::end::finish;
pub(crate) use self::error::ListenError;
pub(crate) use self::gate::Gate;
pub(crate) use self::handover::Predecessor;
pub(crate) use self::link::Link;
pub(crate) use self::listening::{Listening, Wanted, listen};
pub(crate) use self::manager::Manager;
pub(crate) use self::memory::{MemoryLimit, MemoryUse};
pub(crate) use self::signals::Signals;
pub(crate) use self::stage::Ending;
#[cfg(feature = "http3")]
pub(crate) use self::stage::Stage;
#[cfg(feature = "http3")]
pub(crate) use self::tls::within;
pub(crate) use self::tls::{CertificateSource, Tls};
pub(crate) use self::upgrade::Upgrade;
pub(crate) use self::watch::watch;
