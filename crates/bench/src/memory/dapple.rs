//! Colors of Dapple's scheduler.

use super::subject::{Small, Subject};
use anyhow::{Context, Result};
use dapple_sched::{Color, Runtime};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::oneshot;

/// A runtime and the handles of its colors.
pub(crate) struct DappleColors {
    runtime: Runtime,
    colors: Vec<Color>,
}

impl DappleColors {
    /// A runtime without colors.
    pub(crate) fn start() -> Result<DappleColors> {
        // The callback that stalls a color blocks its worker on purpose.
        let builder = Runtime::builder().workers(1).slow_callback(Duration::from_secs(3_600), |_| ());
        Ok(DappleColors { runtime: builder.build().context("cannot start Dapple's worker")?, colors: Vec::new() })
    }
}

impl Subject for DappleColors {
    fn make(&mut self, count: usize) {
        self.colors.reserve_exact(count);
        let handle = self.runtime.handle();
        self.colors.extend((0..count).map(|_| handle.new_color()));
    }

    fn make_stalled(&mut self, gate: oneshot::Receiver<()>) -> usize {
        self.make(1);
        let index = self.colors.len() - 1;
        self.colors[index].post(move || {
            let _ = gate.blocking_recv();
        });
        index
    }

    fn post(&self, index: usize, small: Small) {
        self.colors[index].post(move || small.run());
    }

    fn distinct(&self) -> usize {
        self.colors.iter().map(Color::id).collect::<HashSet<u64>>().len()
    }

    fn starts(&self) -> bool {
        false
    }
}
