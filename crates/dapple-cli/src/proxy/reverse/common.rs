//! What all upstreams have in common.

use std::future::Future;
use std::time::Duration;

use dapple::{Color, Handle};

use super::upstream::Encryption;
use crate::proxy::args::Waits;

/// See the module.
pub(crate) struct Common {
    pub(crate) encryption: Encryption,
    pub(crate) waits: Waits,
    /// Connections to one of them.
    pub(crate) connections_max: usize,
    /// How long a connection may wait for a request.
    pub(crate) idle_max: Duration,
    pub(crate) handle: Handle,
    pub(crate) serial: bool,
}

impl Common {
    /// Starts a task with a color of its own; with `--serial`, one of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match self.serial {
            true => Color::DEFAULT.spawn(task),
            false => self.handle.spawn_balanced(task),
        });
    }
}
