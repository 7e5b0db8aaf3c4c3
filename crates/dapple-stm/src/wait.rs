//! A transaction that waits for one of the variables that it has read.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::Core;
use crate::shared;
use crate::signal::Signal;

/// Registered in the list of every variable that was read; its drop leaves all of them.
pub(crate) struct Wait {
    id: u64,
    signal: Arc<Signal>,
    cores: Vec<&'static Core>,
}

impl Wait {
    /// Begins to wait; `None` if one of the variables has changed since it was read under its word.
    pub(crate) fn begin(reads: impl Iterator<Item = (&'static Core, u64)>) -> Option<Wait> {
        let mut wait = Wait { id: shared::next_id(), signal: Arc::new(Signal::new()), cores: Vec::new() };
        for (core, word) in reads {
            if !core.add_waiter(word, wait.id, &wait.signal) {
                return None;
            }
            wait.cores.push(core);
        }
        Some(wait)
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.poll(cx)
    }

    pub(crate) fn wait(&self) {
        self.signal.wait();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.cores.iter().for_each(|core| core.remove_waiter(self.id));
    }
}
