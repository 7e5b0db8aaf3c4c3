//! The status page: the numbers of the service, in JSON.

use std::sync::Arc;

use dapple::Handle;
use dapple::serve::ServeHandle;
use dapple::time::Instant;
use dapple_files::{Files, FilesCounts};
use dapple_serve::host::MemoryState;
use serde::Serialize;

/// The page. Every number is a total since the start, unless its name says otherwise.
#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_s: f64,
    workers: usize,
    callbacks: u64,
    steals: u64,
    tasks_live: u64,
    requests: u64,
    connections: Connections,
    /// `None` without a limit.
    memory: Option<MemoryStatus>,
    uploads: u64,
    logins_refused: u64,
    locks: usize,
    mounts: usize,
    open_files: usize,
    leases: LeaseStatus,
}

#[derive(Serialize)]
struct Connections {
    open: usize,
    turned_away: u64,
}

#[derive(Serialize)]
struct MemoryStatus {
    limit_bytes: u64,
    used_bytes: u64,
    /// Whether requests are refused.
    is_short: bool,
}

#[derive(Serialize)]
struct LeaseStatus {
    clients: usize,
    files: usize,
    granted: u64,
    recalled: u64,
    expired: u64,
    changes_waiting: usize,
}

/// Lets clients that log in read the page.
pub(super) fn begin(files: &Files, servers: Vec<ServeHandle>, memory: Arc<MemoryState>) {
    let (handle, started) = (Handle::current(), Instant::now());
    files.status_page(move |counts| page(counts, &servers, &memory, &handle, started));
}

fn page(
    counts: FilesCounts,
    servers: &[ServeHandle],
    memory: &MemoryState,
    handle: &Handle,
    started: Instant,
) -> String {
    let stats = handle.stats();
    let leases = counts.leases;
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: started.elapsed().as_secs_f64(),
        workers: stats.workers.len(),
        callbacks: stats.workers.iter().map(|worker| worker.callbacks).sum(),
        steals: stats.workers.iter().map(|worker| worker.steals).sum(),
        tasks_live: stats.tasks_live,
        requests: servers.iter().map(ServeHandle::requests).sum(),
        connections: Connections {
            open: servers.iter().map(ServeHandle::connections).sum(),
            turned_away: servers.iter().map(ServeHandle::turned_away).sum(),
        },
        memory: memory.seen().map(|seen| MemoryStatus {
            limit_bytes: seen.limit,
            used_bytes: seen.used,
            is_short: memory.is_short(),
        }),
        uploads: counts.uploads,
        logins_refused: counts.refused_logins,
        locks: counts.locks,
        mounts: counts.mounts,
        open_files: counts.open_files,
        leases: LeaseStatus {
            clients: leases.clients,
            files: leases.nodes,
            granted: leases.granted,
            recalled: leases.recalled,
            expired: leases.expired,
            changes_waiting: leases.waiting,
        },
    };
    serde_json::to_string(&status).expect("numbers and fixed names are always JSON")
}
