//! The server parts that `serve` and `proxy` share: listening sockets, admission of clients,
//! signals, and the end.

mod admission;
mod descriptors;
mod ebb;
mod end;
mod error;
mod gate;
mod handover;
mod listening;
mod manager;
mod memory;
mod port_owner;
mod sessions;
mod signals;
mod stage;
#[cfg(feature = "self-signed")]
mod tls;
mod upgrade;
mod watch;

pub(crate) use self::admission::Ticket;
pub use self::admission::{Admission, AdmittedConnection, PerAddress, Refusal, client_key};
pub use self::descriptors::{FILES_MAX, Shares, shares};
pub use self::ebb::give_back;
pub use self::end::finish;
pub use self::error::ListenError;
pub use self::gate::{Gate, accept};
pub use self::handover::Predecessor;
pub use self::listening::{Listening, Wanted, listen};
pub use self::manager::Manager;
pub use self::memory::{MEMORY_LOOK_EVERY, MemoryLimit, MemoryState, MemoryUse, TIGHT_ENDS};
pub use self::sessions::{Sessions, serve_sessions};
pub use self::signals::{Signals, StopSignals};
pub use self::stage::EndStage;
pub use self::stage::Ending;
#[cfg(feature = "self-signed")]
pub use self::tls::{CertificateSource, Tls, within};
pub use self::upgrade::Upgrade;
pub use self::watch::watch;
pub use crate::accept::Host;
pub use crate::link::Link;
pub use dapple_io::Connection;
