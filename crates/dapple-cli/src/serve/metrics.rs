//! The `/metrics` page of a site.

use std::sync::Arc;

use super::site::Site;
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;
use crate::observe::metrics::{connections, process, workers};
use crate::server::OwnNetwork;

/// The metrics of one site.
pub(crate) struct SiteNumbers {
    site: Arc<Site>,
    network: OwnNetwork,
}

impl SiteNumbers {
    pub(crate) fn new(site: Arc<Site>, network: OwnNetwork) -> SiteNumbers {
        SiteNumbers { site, network }
    }
}

impl Numbers for SiteNumbers {
    async fn collect(&self) -> String {
        let mut out = Exposition::new();
        out.family("dapple_build_info", Kind::Gauge, "The program; always 1.");
        out.sample("dapple_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("command", "serve")], 1.0);
        let sinks = self.site.observing.sinks();
        if let Some(metrics) = sinks.and_then(|sinks| sinks.metrics.as_ref()) {
            metrics.write(&mut out);
        }
        taken(&self.site, &mut out);
        memory(&self.site, &mut out);
        caches(&self.site, &mut out).await;
        disk(&self.site, &mut out);
        if let Some(log) = sinks.and_then(|sinks| sinks.log.as_ref()) {
            let help = "Access log lines that were dropped or could not be written.";
            out.single("dapple_access_log_lines_dropped_total", Kind::Counter, help, log.dropped() as f64);
        }
        self.network.write(&mut out);
        workers::write(&self.site.handle, &mut out);
        process::write(&mut out);
        out.finish()
    }
}

fn taken(site: &Site, out: &mut Exposition) {
    connections::write(&site.admission, out);
    out.single("dapple_connections_total", Kind::Counter, "Connections accepted.", site.counters.accepted() as f64);
    let name = "dapple_tls_handshakes_total";
    out.family(name, Kind::Counter, "Finished TLS handshakes, by whether they succeeded.");
    for (result, count) in ["ok", "failed"].into_iter().zip(site.counters.handshakes()) {
        out.sample(name, &[("result", result)], count as f64);
    }
}

/// Writes nothing without a memory limit.
fn memory(site: &Site, out: &mut Exposition) {
    let Some(memory) = site.memory.status() else { return };
    let gauges = [
        ("dapple_memory_limit_bytes", "The closest memory limit.", memory.limit_bytes),
        (
            "dapple_memory_used_bytes",
            "Memory that counts against the limit and that the kernel cannot free.",
            memory.used_bytes,
        ),
        ("dapple_memory_short", "Whether new connections are refused because memory is short.", memory.is_short.into()),
        ("dapple_page_cache_max_bytes", "The current size limit of the page cache.", memory.page_cache_max_bytes),
    ];
    for (name, help, value) in gauges {
        out.single(name, Kind::Gauge, help, value as f64);
    }
    let help = "Times that the page cache shrank because memory was tight.";
    out.single("dapple_page_cache_shrinks_total", Kind::Counter, help, memory.page_cache_shrinks as f64);
}

/// Asks each cache in its own color.
async fn caches(site: &Site, out: &mut Exposition) {
    let mut pages = [0_u64; 5];
    for (index, shard) in site.shards.iter().enumerate() {
        let mut of_shard =
            shard.with(|shard| [shard.len() as u64, shard.bytes(), shard.hits, shard.misses, shard.evictions()]).await;
        of_shard[2] += site.hot.hits(index);
        pages.iter_mut().zip(of_shard).for_each(|(sum, number)| *sum += number);
    }
    let families = [
        ("dapple_page_cache_pages", Kind::Gauge, "Pages in the cache."),
        ("dapple_page_cache_bytes", Kind::Gauge, "Memory of the pages in the cache."),
        ("dapple_page_cache_hits_total", Kind::Counter, "Look-ups that found a page."),
        ("dapple_page_cache_misses_total", Kind::Counter, "Look-ups that found none, or one to check."),
        ("dapple_page_cache_evictions_total", Kind::Counter, "Pages evicted."),
    ];
    for ((name, kind, help), value) in families.into_iter().zip(pages) {
        out.single(name, kind, help, value as f64);
    }
    let paths = site.handles.with(|handles| [handles.len() as u64, handles.hits, handles.misses]).await;
    let families = [
        ("dapple_file_handles", Kind::Gauge, "Paths in the cache of open files."),
        ("dapple_file_handle_hits_total", Kind::Counter, "Look-ups that found a path."),
        ("dapple_file_handle_misses_total", Kind::Counter, "Look-ups that asked the disk."),
    ];
    for ((name, kind, help), value) in families.into_iter().zip(paths) {
        out.single(name, kind, help, value as f64);
    }
}

/// Writes nothing if all requests may wait for the disk.
fn disk(site: &Site, out: &mut Exposition) {
    let Some(looks) = &site.looks else { return };
    let stats = looks.stats();
    let families = [
        ("dapple_disk_looks_total", Kind::Counter, "Disk look-ups that did not finish at once.", stats.finished),
        (
            "dapple_disk_looks_refused_total",
            Kind::Counter,
            "Look-ups refused because they would have taken too long.",
            stats.refused + stats.dropped,
        ),
        (
            "dapple_pages_served_stale_total",
            Kind::Counter,
            "Pages sent unchecked from memory because the disk had no time.",
            looks.served_stale(),
        ),
        ("dapple_disk_looks_waiting", Kind::Gauge, "Look-ups waiting to start.", stats.waiting as u64),
    ];
    for (name, kind, help, value) in families {
        out.single(name, kind, help, value as f64);
    }
}
