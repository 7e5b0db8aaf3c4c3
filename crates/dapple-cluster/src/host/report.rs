//! A host's report about itself: its tasks change it, and the one that registers writes it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dapple_io::time::timeout;
use dapple_sync::sync::watch;

use crate::record::{HostReport, ReplicaReport};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Reporting {
    /// Locked only to change or clone it.
    state: Mutex<State>,
    /// The number of the last change.
    changed: watch::Sender<u64>,
    /// The number of the last change that is in etcd.
    written: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    report: HostReport,
    /// Replicas with a successor on this host.
    succeeded: BTreeSet<String>,
}

impl Reporting {
    pub(crate) fn new(report: HostReport) -> Reporting {
        let state = Mutex::new(State { report, succeeded: BTreeSet::new() });
        Reporting { state, changed: watch::Sender::new(1), written: watch::Sender::new(0) }
    }

    pub(crate) fn get(&self) -> HostReport {
        self.lock(|state| state.report.clone())
    }

    pub(crate) fn has_replicas(&self) -> bool {
        self.lock(|state| !state.report.replicas.is_empty())
    }

    /// Changes the report; the change is written soon.
    pub(crate) fn change(&self, change: impl FnOnce(&mut HostReport)) {
        self.lock(|state| change(&mut state.report));
        self.changed.send_modify(|number| *number += 1);
    }

    /// Changes one replica's part.
    pub(crate) fn replica(&self, name: &str, change: impl FnOnce(&mut ReplicaReport)) {
        self.change(|report| change(report.replicas.entry(name.to_owned()).or_default()));
    }

    /// Changes a replica's part that is written with the next change of another kind.
    pub(crate) fn measured(&self, name: &str, load_percent: u32, memory_mb: u64) {
        self.lock(|state| {
            if let Some(replica) = state.report.replicas.get_mut(name) {
                (replica.load_percent, replica.memory_mb) = (load_percent, memory_mb);
            }
        });
    }

    /// Sets the machine's load; it is written with the next change.
    pub(crate) fn loaded(&self, load_percent: u32, memory_free_mb: u64) {
        self.lock(|state| (state.report.load_percent, state.report.memory_free_mb) = (load_percent, memory_free_mb));
    }

    /// Sets the replicas of which a successor is here.
    pub(crate) fn succeeds(&self, succeeded: BTreeSet<String>) {
        self.lock(|state| state.succeeded = succeeded);
    }

    pub(crate) fn has_successor(&self, replica: &str) -> bool {
        self.lock(|state| state.succeeded.contains(replica))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Notes that the state after this change is in etcd.
    pub(crate) fn is_written(&self, number: u64) {
        self.written.send_modify(|written| *written = (*written).max(number));
    }

    /// Waits until all changes so far are in etcd, but not for longer than `limit`.
    pub(crate) async fn all_written(&self, limit: Duration) {
        let number = *self.changed.borrow();
        let mut written = self.written.subscribe();
        let _written_or_late = timeout(limit, written.wait_for(|written| *written >= number)).await;
    }

    fn lock<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
