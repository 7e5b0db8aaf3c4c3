//! The state that all upstreams share.

use std::future::Future;
use std::sync::Arc;

use dapple::Handle;
use dapple_client::upstream::Config;

use crate::proxy::args::Waits;

/// The state that all upstreams share.
pub(crate) struct Common {
    /// How connections are made, and their limits.
    pub(crate) config: Arc<Config>,
    pub(crate) waits: Waits,
    pub(crate) handle: Handle,
    pub(crate) serial: bool,
}

impl Common {
    /// Starts a task with a color of its own; with `--serial`, of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.config.spawn.spawn(task);
    }
}
