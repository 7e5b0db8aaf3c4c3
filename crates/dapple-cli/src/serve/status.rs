//! The status page: counters of the scheduler and the server, in JSON.

use std::collections::BTreeMap;

use dapple::WorkerStats;
use dapple::stage::admission::AdmissionStats;
use serde::Serialize;

use super::looks::Looks;
use super::memory::MemoryStatus;
use super::pages::Shard;
use super::site::Site;

/// The path of the page. It hides a file of this name in the site.
pub(crate) const PATH: &str = "/-/status";

/// The page. Every number is a total since the start, unless its name says otherwise.
#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_s: f64,
    serial: bool,
    /// The number of workers; `per_worker` has their counters.
    workers: usize,
    callbacks: u64,
    steals: u64,
    tasks_live: u64,
    posts_outside: u64,
    requests: u64,
    bytes_sent: u64,
    connections: Connections,
    /// `None` without a limit.
    memory: Option<MemoryStatus>,
    /// The color and worker that served this request.
    served_by: ServedBy,
    per_worker: Vec<Worker>,
    page_cache: Vec<ShardStatus>,
    file_handles: HandlesStatus,
    /// `None` if all requests may wait for the disk.
    disk: Option<DiskStatus>,
}

/// Disk look-ups that took more than a moment.
#[derive(Serialize)]
struct DiskStatus {
    looks: u64,
    refused: u64,
    /// Pages sent unchecked from memory, because there was no time for a look-up.
    served_stale: u64,
    waiting: usize,
    in_service: usize,
}

#[derive(Serialize)]
struct Connections {
    open: usize,
    total: u64,
    refused: u64,
    refused_for: BTreeMap<&'static str, u64>,
    tls_handshakes: Handshakes,
}

#[derive(Serialize)]
struct Handshakes {
    ok: u64,
    failed: u64,
}

#[derive(Serialize)]
struct ServedBy {
    /// The color of the connection, as a number to display.
    color: u64,
    worker: Option<usize>,
}

#[derive(Serialize)]
struct Worker {
    callbacks: u64,
    turns: u64,
    steals: u64,
    colors_stolen: u64,
    parks: u64,
    panics: u64,
    queue_len: u64,
}

#[derive(Serialize)]
struct ShardStatus {
    color: u64,
    pages: usize,
    bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

#[derive(Serialize)]
struct HandlesStatus {
    color: u64,
    paths: usize,
    hits: u64,
    misses: u64,
}

impl From<&WorkerStats> for Worker {
    fn from(stats: &WorkerStats) -> Worker {
        Worker {
            callbacks: stats.callbacks,
            turns: stats.turns,
            steals: stats.steals,
            colors_stolen: stats.colors_stolen,
            parks: stats.parks,
            panics: stats.panics,
            queue_len: stats.queue_len,
        }
    }
}

/// Collects the numbers; `color` is that of the asking connection. Asks each shard in its own
/// color.
pub(crate) async fn collect(site: &Site, color: u64) -> String {
    let mut page_cache = Vec::with_capacity(site.shards.len());
    for (index, shard) in site.shards.iter().enumerate() {
        let color = shard.color().id();
        let mut status = shard.with(|shard| shard_status(color, shard)).await;
        status.hits += site.hot.hits(index);
        page_cache.push(status);
    }
    let color_of_handles = site.handles.color().id();
    let file_handles = site.handles.with(|handles| HandlesStatus {
        color: color_of_handles,
        paths: handles.len(),
        hits: handles.hits,
        misses: handles.misses,
    });
    let file_handles = file_handles.await;
    let stats = site.handle.stats();
    let (requests, bytes_sent) = site.counters.requests_and_bytes();
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: site.started.elapsed().as_secs_f64(),
        serial: site.serial,
        workers: stats.workers.len(),
        callbacks: stats.workers.iter().map(|worker| worker.callbacks).sum(),
        steals: stats.workers.iter().map(|worker| worker.steals).sum(),
        tasks_live: stats.tasks_live,
        posts_outside: stats.posts_outside,
        requests,
        bytes_sent,
        connections: connections(site),
        memory: site.memory.status(),
        served_by: ServedBy { color, worker: site.counters.worker_index() },
        per_worker: stats.workers.iter().map(Worker::from).collect(),
        page_cache,
        file_handles,
        disk: site.looks.as_ref().map(|looks| disk(looks)),
    };
    serde_json::to_string(&status).expect("numbers and fixed names are always JSON")
}

fn connections(site: &Site) -> Connections {
    let refused_for: BTreeMap<_, _> = site.admission.refused_by_reason().collect();
    let [ok, failed] = site.counters.handshakes();
    Connections {
        open: site.counters.open(),
        total: site.counters.accepted(),
        refused: refused_for.values().sum(),
        refused_for,
        tls_handshakes: Handshakes { ok, failed },
    }
}

fn shard_status(color: u64, shard: &Shard) -> ShardStatus {
    ShardStatus {
        color,
        pages: shard.len(),
        bytes: shard.bytes(),
        hits: shard.hits,
        misses: shard.misses,
        evictions: shard.evictions(),
    }
}

fn disk(looks: &Looks) -> DiskStatus {
    let (stats, served_stale) = (looks.stats(), looks.served_stale());
    let AdmissionStats { finished, waiting, in_service, .. } = stats;
    DiskStatus { looks: finished, refused: stats.refused + stats.dropped, served_stale, waiting, in_service }
}
