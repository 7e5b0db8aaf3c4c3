//! The contents and counters of a cache, for `/-/status` and `/metrics`.

use serde::Serialize;

use super::{Cache, Source};
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::proxy::tally::Count;

/// The contents of a cache.
#[derive(Default, Serialize)]
pub(crate) struct CacheStatus {
    addresses: usize,
    bytes: u64,
    evictions: u64,
    /// Responses in transit.
    fetches: usize,
    shards: usize,
}

impl<S: Source> Cache<S> {
    /// Asks each shard, in its own color.
    pub(crate) async fn status(&self) -> CacheStatus {
        let mut status = CacheStatus { shards: self.shards.len(), ..CacheStatus::default() };
        for shard in &self.shards {
            let (len, bytes, evictions, fills) =
                shard.with(|shard| (shard.len(), shard.bytes(), shard.evictions(), shard.fills())).await;
            status.addresses += len;
            status.bytes += bytes;
            status.evictions += evictions;
            status.fetches += fills;
        }
        status
    }

    /// Writes all metrics of a cache.
    pub(crate) async fn write_metrics(&self, out: &mut Exposition) {
        let status = self.status().await;
        let gauges = [
            ("dapple_cache_entries", "Addresses in the cache.", status.addresses as u64),
            ("dapple_cache_bytes", "Memory of the responses in the cache.", status.bytes),
            ("dapple_cache_fetches", "Responses on their way into the cache.", status.fetches as u64),
        ];
        for (name, help, value) in gauges {
            out.single(name, Kind::Gauge, help, value as f64);
        }
        let help = "Addresses evicted from the cache.";
        out.single("dapple_cache_evictions_total", Kind::Counter, help, status.evictions as f64);
        for (count, name, help) in COUNTERS {
            out.single(name, Kind::Counter, help, self.tally.sum(count) as f64);
        }
    }
}

/// The counters, with their names and help texts.
const COUNTERS: [(Count, &str, &str); 7] = [
    (Count::Hits, "dapple_cache_hits_total", "Requests answered from the cache."),
    (Count::Misses, "dapple_cache_misses_total", "Requests for which the cache asked a server."),
    (Count::Collapsed, "dapple_cache_collapsed_total", "Misses answered by the fetch of another request."),
    (Count::Revalidated, "dapple_cache_revalidated_total", "Stored responses that a server confirmed."),
    (Count::Stale, "dapple_cache_stale_total", "Stale responses sent."),
    (Count::Passed, "dapple_cache_passed_total", "Requests that bypass the cache."),
    (Count::BytesToClients, "dapple_cache_sent_bytes_total", "Bytes of bodies sent from memory."),
];
