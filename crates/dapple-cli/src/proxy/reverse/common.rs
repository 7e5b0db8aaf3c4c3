//! What all upstreams have in common.

use std::future::Future;
use std::sync::Arc;

use dapple::Handle;
use dapple_client::upstream::Config;

use crate::proxy::args::Waits;

/// See the module.
pub(crate) struct Common {
    /// How connections are made, and how many there may be.
    pub(crate) config: Arc<Config>,
    pub(crate) waits: Waits,
    pub(crate) handle: Handle,
    pub(crate) serial: bool,
}

impl Common {
    /// Starts a task with a color of its own; with `--serial`, one of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.config.spawn.spawn(task);
    }
}
