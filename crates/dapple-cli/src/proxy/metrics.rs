//! What `/metrics` says of a proxy.

use std::sync::Arc;

use super::proxy::Proxy;
use super::tally::Count;
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;
use crate::observe::metrics::{process, workers};

/// The numbers of one proxy.
pub(crate) struct ProxyNumbers {
    proxy: Arc<Proxy>,
}

impl ProxyNumbers {
    pub(crate) fn new(proxy: Arc<Proxy>) -> ProxyNumbers {
        ProxyNumbers { proxy }
    }
}

impl Numbers for ProxyNumbers {
    /// Each cache, and the list of idle connections, is asked in its own color.
    async fn collect(&self) -> String {
        let proxy = &*self.proxy;
        let mut out = Exposition::new();
        out.family("dapple_build_info", Kind::Gauge, "The program; always 1.");
        out.sample("dapple_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("command", "proxy")], 1.0);
        let sinks = proxy.observing.sinks();
        if let Some(metrics) = sinks.and_then(|sinks| sinks.metrics.as_ref()) {
            metrics.write(&mut out);
        }
        connections(proxy, &mut out);
        proxy.cache.write_metrics(&mut out).await;
        gauges(proxy, &mut out);
        for (count, name, help) in COUNTERS {
            out.single(name, Kind::Counter, help, proxy.tally.sum(count) as f64);
        }
        if let Some(log) = sinks.and_then(|sinks| sinks.log.as_ref()) {
            let help = "Lines of the access log that were dropped or could not be written.";
            out.single("dapple_access_log_lines_dropped_total", Kind::Counter, help, log.dropped() as f64);
        }
        workers::write(&proxy.handle, &mut out);
        process::write(&mut out);
        out.finish()
    }
}

fn connections(proxy: &Proxy, out: &mut Exposition) {
    let (open, taken) = (proxy.admission.open(), proxy.tally.sum(Count::Accepted));
    out.single("dapple_connections_open", Kind::Gauge, "Connections of clients that are open.", open as f64);
    out.single("dapple_connections_total", Kind::Counter, "Connections of clients that were taken.", taken as f64);
    let name = "dapple_connections_refused_total";
    let help = "Connections that were turned away: by the limit that they met, or as those of strangers.";
    out.family(name, Kind::Counter, help);
    let strangers = ("stranger", proxy.tally.sum(Count::Strangers));
    for (reason, count) in proxy.admission.refused_by_reason().chain([strangers]) {
        out.sample(name, &[("reason", reason)], count as f64);
    }
}

fn gauges(proxy: &Proxy, out: &mut Exposition) {
    let (open, idle) = proxy.upstream.connections();
    let gauges = [
        ("dapple_tunnels_open", "Tunnels that are open.", proxy.tally.tunnels_open() as u64),
        ("dapple_upstream_connections_open", "Connections to servers, tunnels' included.", open as u64),
        ("dapple_upstream_connections_idle", "Connections to servers that wait for their next request.", idle as u64),
    ];
    for (name, help, value) in gauges {
        out.single(name, Kind::Gauge, help, value as f64);
    }
}

/// What is counted, and as what it shows.
const COUNTERS: [(Count, &str, &str); 9] = [
    (Count::Refused, "dapple_proxy_refused_total", "Requests for what may not be reached."),
    (Count::Failed, "dapple_proxy_failed_total", "Requests that were answered with an error of the proxy's own."),
    (Count::FetchesFailed, "dapple_upstream_fetches_failed_total", "Requests to servers that came to no response."),
    (Count::BytesFromOrigins, "dapple_upstream_received_bytes_total", "Bytes of bodies that came from servers."),
    (Count::Connects, "dapple_upstream_connects_total", "Connections to servers that were made."),
    (Count::Reused, "dapple_upstream_reused_total", "Requests on connections that were kept."),
    (Count::Retries, "dapple_upstream_retries_total", "Requests that were made once more, on a fresh connection."),
    (Count::Tunnels, "dapple_tunnels_total", "Tunnels that were made."),
    (Count::TunnelBytes, "dapple_tunnel_bytes_total", "Bytes that went through tunnels that have ended, both ways."),
];
