//! The `/metrics` page of a file service.

use std::sync::Arc;

use dapple::Handle;
use dapple::serve::ServeHandle;
use dapple_files::Files;

use crate::observe::log::Log;
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;

/// The metrics of one file service.
pub(super) struct FilesNumbers {
    files: Files,
    servers: Vec<ServeHandle>,
    handle: Handle,
    audit_log: Option<Arc<Log>>,
}

impl FilesNumbers {
    pub(super) fn new(
        files: Files,
        servers: Vec<ServeHandle>,
        handle: Handle,
        audit_log: Option<Arc<Log>>,
    ) -> FilesNumbers {
        FilesNumbers { files, servers, handle, audit_log }
    }
}

impl Numbers for FilesNumbers {
    async fn collect(&self) -> String {
        let mut out = Exposition::new();
        out.family("dapple_files_info", Kind::Gauge, "The program; always 1.");
        out.sample("dapple_files_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let counts = self.files.counts().await;
        let leases = counts.leases;
        let all = [
            ("dapple_files_uploads_total", Kind::Counter, "Uploads that ended well.", counts.uploads),
            ("dapple_files_logins_refused_total", Kind::Counter, "Wrong tokens and passwords.", counts.refused_logins),
            ("dapple_files_locks", Kind::Gauge, "Locks of WebDAV's clients.", counts.locks as u64),
            ("dapple_files_lease_clients", Kind::Gauge, "Clients that may hold leases.", leases.clients as u64),
            ("dapple_files_leases_granted_total", Kind::Counter, "Leases granted.", leases.granted),
            ("dapple_files_leases_recalled_total", Kind::Counter, "Leases asked back.", leases.recalled),
            (
                "dapple_files_leases_expired_total",
                Kind::Counter,
                "Changes that waited until a lease had run out.",
                leases.expired,
            ),
            ("dapple_files_changes_waiting", Kind::Gauge, "Changes that wait for leases.", leases.waiting as u64),
        ];
        for (name, kind, help, value) in all {
            out.single(name, kind, help, value as f64);
        }
        if let Some(log) = &self.audit_log {
            let help = "Lines of the audit log that were lost: the disk was full or slow.";
            out.single("dapple_files_audit_lines_lost_total", Kind::Counter, help, log.dropped() as f64);
        }
        let mut page = out.finish();
        // Each server's page has the figures of the runtime that they share: one page is enough.
        match self.servers.as_slice() {
            [server, ..] => page.push_str(&server.metrics()),
            [] => page.push_str(&dapple::serve::runtime_metrics(&self.handle)),
        }
        page
    }
}
