//! The host's side: stages by name, and a listener for those who send to them.

mod answer;
mod body;
mod builder;
mod limits;
mod main;
mod options;
mod registered;
mod replicas;
mod serve;
mod staged;
mod stopper;
mod takeover;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use dapple_io::net::Listener;
use dapple_stage::graph::Named;

pub use self::builder::HostBuilder;
pub use self::limits::HostLimits;
pub use self::main::{HostError, host_main, host_run};
pub use self::options::{HostCommand, HostOptions};
pub use self::serve::Report;
pub use self::stopper::Stopper;

use self::registered::Registered;

/// Runs stages that a program has registered by name, for [`RemoteStage`](super::RemoteStage)s elsewhere.
///
/// It speaks HTTP/2 without encryption on a trusted network, and HTTP/1.1 on the same port for probes and people; with the feature
/// `tls` both encrypted. `docs/remote.md` has the protocol.
///
/// What a stranger can make it hold is bounded by [`HostLimits`]. A request is refused, and has not run, where there are too many,
/// where memory for their messages is used up, or when its time has passed. A handler whose sender has gone, or whose time
/// has passed, is dropped; a panic in one ends only that request.
///
/// There is an example at [`RemoteStage`](super::RemoteStage).
pub struct Host {
    shared: Arc<Shared>,
    stopper: Stopper,
    #[cfg(feature = "tls")]
    tls: Option<dapple_tls::TlsAcceptor>,
}

/// What all connections use.
pub(crate) struct Shared {
    pub(crate) stages: BTreeMap<String, Box<dyn Registered>>,
    /// What graphs show of those that are no [`Stage`](dapple_stage::Stage)s; a graph keeps nothing alive.
    pub(crate) _names: Vec<Named<()>>,
    pub(crate) limits: HostLimits,
    pub(crate) stopper: Stopper,
    pub(crate) gauges: limits::Gauges,
}

impl Host {
    /// Begins with no stage.
    pub fn builder() -> HostBuilder {
        HostBuilder::new()
    }

    /// What ends the host.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The names of its stages, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.stages.keys().map(String::as_str)
    }

    /// Serves whoever connects, until it is stopped by its [`Stopper`] and what it had has ended.
    ///
    /// The end goes in stages: no client is accepted any more; clients are told, and send new requests elsewhere; requests on their way
    /// are finished; connections close. A request that has not ended by [`HostLimits::drain`] is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it resolves, the host ends as if it had been stopped, in the background.
    ///
    /// # Errors
    ///
    /// Those of the listening socket.
    pub async fn serve(self, listener: impl Listener) -> io::Result<Report> {
        serve::serve(self, listener).await
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("stages", &self.shared.stages.keys()).finish_non_exhaustive()
    }
}
