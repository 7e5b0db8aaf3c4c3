//! The `/metrics` page of a proxy.

use std::sync::Arc;

use super::proxy::Proxy;
use super::tally::Count;
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;
use crate::observe::metrics::{process, workers};

/// The metrics of one proxy.
pub(crate) struct ProxyNumbers {
    proxy: Arc<Proxy>,
}

impl ProxyNumbers {
    pub(crate) fn new(proxy: Arc<Proxy>) -> ProxyNumbers {
        ProxyNumbers { proxy }
    }
}

impl Numbers for ProxyNumbers {
    /// Asks each cache, and the list of idle connections, in its own color.
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
            let help = "Access log lines that were dropped or could not be written.";
            out.single("dapple_access_log_lines_dropped_total", Kind::Counter, help, log.dropped() as f64);
        }
        workers::write(&proxy.handle, &mut out);
        process::write(&mut out);
        out.finish()
    }
}

fn connections(proxy: &Proxy, out: &mut Exposition) {
    let (open, taken) = (proxy.admission.open(), proxy.tally.sum(Count::Accepted));
    out.single("dapple_connections_open", Kind::Gauge, "Open client connections.", open as f64);
    out.single("dapple_connections_total", Kind::Counter, "Client connections accepted.", taken as f64);
    let name = "dapple_connections_refused_total";
    let help = "Connections turned away, by limit, or because the client is not allowed.";
    out.family(name, Kind::Counter, help);
    let strangers = ("stranger", proxy.tally.sum(Count::Strangers));
    for (reason, count) in proxy.admission.refused_by_reason().chain([strangers]) {
        out.sample(name, &[("reason", reason)], count as f64);
    }
}

fn gauges(proxy: &Proxy, out: &mut Exposition) {
    let (open, idle) = proxy.upstream.connections();
    let gauges = [
        ("dapple_tunnels_open", "Open tunnels.", proxy.tally.tunnels_open() as u64),
        ("dapple_upstream_connections_open", "Connections to servers, including those of tunnels.", open as u64),
        ("dapple_upstream_connections_idle", "Connections to servers that wait for their next request.", idle as u64),
    ];
    for (name, help, value) in gauges {
        out.single(name, Kind::Gauge, help, value as f64);
    }
}

/// The counters, with their names and help texts.
const COUNTERS: [(Count, &str, &str); 9] = [
    (Count::Refused, "dapple_proxy_refused_total", "Requests for forbidden destinations."),
    (Count::Failed, "dapple_proxy_failed_total", "Requests answered with an error of the proxy."),
    (Count::FetchesFailed, "dapple_upstream_fetches_failed_total", "Requests to servers that got no response."),
    (Count::BytesFromOrigins, "dapple_upstream_received_bytes_total", "Bytes of bodies received from servers."),
    (Count::Connects, "dapple_upstream_connects_total", "Connections made to servers."),
    (Count::Reused, "dapple_upstream_reused_total", "Requests on kept connections."),
    (Count::Retries, "dapple_upstream_retries_total", "Requests repeated on a fresh connection."),
    (Count::Tunnels, "dapple_tunnels_total", "Tunnels made."),
    (Count::TunnelBytes, "dapple_tunnel_bytes_total", "Bytes through finished tunnels, both ways."),
];
