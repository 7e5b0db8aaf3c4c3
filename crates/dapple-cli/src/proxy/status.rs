//! The proxy's status page, in JSON.

use serde::Serialize;

use super::cache::numbers::CacheStatus;
use super::proxy::Proxy;
use super::tally::Count;

/// The path of the page, for clients on this machine that ask the proxy itself.
pub(crate) const PATH: &str = "/-/status";

/// The page. Every number is a total since the start, unless its name says otherwise.
#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_s: f64,
    serial: bool,
    workers: usize,
    callbacks: u64,
    steals: u64,
    tasks_live: u64,
    /// The color of the connection that asks, as a number to display.
    color: u64,
    requests: u64,
    hits: u64,
    misses: u64,
    collapsed: u64,
    revalidated: u64,
    stale: u64,
    passed: u64,
    refused: u64,
    failed: u64,
    bytes_from_cache: u64,
    bytes_from_origins: u64,
    connections: Connections,
    upstream: UpstreamStatus,
    tunnels: Tunnels,
    cache: CacheStatus,
}

#[derive(Serialize)]
struct Connections {
    open: usize,
    turned_away: u64,
}

#[derive(Serialize)]
struct UpstreamStatus {
    open: usize,
    idle: usize,
    connects: u64,
    reused: u64,
    retries: u64,
}

#[derive(Serialize)]
struct Tunnels {
    open: usize,
    total: u64,
    bytes: u64,
}

/// Collects the numbers.
pub(crate) async fn collect(proxy: &Proxy, color: u64) -> String {
    let cache = proxy.cache.status().await;
    let tally = &proxy.tally;
    let (open, idle) = proxy.upstream.connections();
    let upstream = UpstreamStatus {
        open,
        idle,
        connects: tally.sum(Count::Connects),
        reused: tally.sum(Count::Reused),
        retries: tally.sum(Count::Retries),
    };
    let stats = proxy.handle.stats();
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: proxy.started.elapsed().as_secs_f64(),
        serial: proxy.serial,
        workers: stats.workers.len(),
        callbacks: stats.workers.iter().map(|worker| worker.callbacks).sum(),
        steals: stats.workers.iter().map(|worker| worker.steals).sum(),
        tasks_live: stats.tasks_live,
        color,
        requests: tally.sum(Count::Requests),
        hits: tally.sum(Count::Hits),
        misses: tally.sum(Count::Misses),
        collapsed: tally.sum(Count::Collapsed),
        revalidated: tally.sum(Count::Revalidated),
        stale: tally.sum(Count::Stale),
        passed: tally.sum(Count::Passed),
        refused: tally.sum(Count::Refused),
        failed: tally.sum(Count::Failed),
        bytes_from_cache: tally.sum(Count::BytesToClients),
        bytes_from_origins: tally.sum(Count::BytesFromOrigins),
        connections: Connections {
            open: proxy.admission.open(),
            turned_away: proxy.admission.refused_by_reason().map(|(_, count)| count).sum::<u64>()
                + tally.sum(Count::Strangers),
        },
        upstream,
        tunnels: Tunnels {
            open: tally.tunnels_open(),
            total: tally.sum(Count::Tunnels),
            bytes: tally.sum(Count::TunnelBytes),
        },
        cache,
    };
    serde_json::to_string(&status).expect("numbers and fixed names are always JSON")
}
