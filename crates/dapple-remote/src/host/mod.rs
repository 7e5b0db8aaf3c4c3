//! The host's side: stages by name, and a listener for senders.

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

/// Runs stages that a program has registered by name, for [`RemoteStage`](super::RemoteStage)s
/// elsewhere.
///
/// It speaks HTTP/2 without encryption on a trusted network, and HTTP/1.1 on the same port for
/// probes and people; with the feature `tls` also encrypted. `docs/remote.md` has the protocol.
///
/// [`HostLimits`] bound what a client can make it hold. A request is refused, and has not run, if
/// there are too many, if the memory for messages is used up, or if its time has passed. A handler
/// is dropped when its sender has gone, or its time has passed; a panic in a handler ends only that
/// request.
///
/// There is an example at [`RemoteStage`](super::RemoteStage).
pub struct Host {
    shared: Arc<Shared>,
    stopper: Stopper,
    #[cfg(feature = "tls")]
    tls: Option<dapple_tls::TlsAcceptor>,
}

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) stages: BTreeMap<String, Box<dyn Registered>>,
    /// The names that graphs show of those that are not [`Stage`](dapple_stage::Stage)s; a graph
    /// keeps nothing alive.
    pub(crate) _names: Vec<Named<()>>,
    pub(crate) limits: HostLimits,
    pub(crate) stopper: Stopper,
    pub(crate) gauges: limits::Gauges,
}

impl Host {
    /// Creates a builder without stages.
    pub fn builder() -> HostBuilder {
        HostBuilder::new()
    }

    /// Returns a value that ends the host.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// The names of its stages, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.stages.keys().map(String::as_str)
    }

    /// Serves all clients, until its [`Stopper`] stops it and its requests have ended.
    ///
    /// The end has stages: it accepts no more clients; it tells clients, which then send new
    /// requests elsewhere; it finishes requests in progress; it closes connections. A request that
    /// has not ended by [`HostLimits::drain`] is dropped.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the host ends in the background as if it had been stopped.
    ///
    /// # Errors
    ///
    /// The errors of the listening socket.
    pub async fn serve(self, listener: impl Listener) -> io::Result<Report> {
        serve::serve(self, listener).await
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("stages", &self.shared.stages.keys()).finish_non_exhaustive()
    }
}
