//! The `/metrics` page of a host.

use std::sync::Arc;

use dapple::Handle;
use dapple_cluster::Host;
use dapple_cluster::record::ReplicaState;

use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;

/// The metrics of one host.
pub(super) struct HostNumbers {
    pub(super) host: Arc<Host>,
    pub(super) handle: Handle,
}

impl Numbers for HostNumbers {
    async fn collect(&self) -> String {
        let report = self.host.report();
        let mut out = Exposition::new();
        out.family("dapple_host_info", Kind::Gauge, "The host; always 1.");
        out.sample("dapple_host_info", &[("name", &report.name), ("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let ready = report.replicas.values().filter(|one| one.state == ReplicaState::Ready).count();
        let restarts: u32 = report.replicas.values().map(|one| one.restarts).sum();
        for (name, help, value) in [
            ("dapple_host_replicas", "Replicas that run here.", report.replicas.len() as f64),
            ("dapple_host_replicas_ready", "Replicas that serve.", ready as f64),
            ("dapple_host_replica_restarts", "Restarts of the replicas that run here.", f64::from(restarts)),
            ("dapple_host_load_ratio", "The use of all cores.", f64::from(report.load_percent) / 100.0),
            (
                "dapple_host_memory_free_bytes",
                "Memory that the kernel says is available.",
                (report.memory_free_mb << 20) as f64,
            ),
        ] {
            out.single(name, Kind::Gauge, help, value);
        }
        let mut page = out.finish();
        page.push_str(&dapple::serve::runtime_metrics(&self.handle));
        page
    }
}
