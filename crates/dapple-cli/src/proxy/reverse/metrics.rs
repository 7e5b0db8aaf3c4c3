//! The `/metrics` page of a reverse proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::list::List;
use super::reverse::Reverse;
use super::upstream::{Counts, Upstream};
use dapple::stage::balance::{ReplicaState, ReplicaStats};

use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;
use crate::observe::metrics::{process, workers};
use crate::proxy::tally::Count;

/// The metrics of one proxy.
pub(super) struct ReverseNumbers {
    reverse: Arc<Reverse>,
}

impl ReverseNumbers {
    pub(super) fn new(reverse: Arc<Reverse>) -> ReverseNumbers {
        ReverseNumbers { reverse }
    }
}

impl Numbers for ReverseNumbers {
    async fn collect(&self) -> String {
        let reverse = &*self.reverse;
        let mut out = Exposition::new();
        out.family("dapple_build_info", Kind::Gauge, "The program; always 1.");
        out.sample("dapple_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("command", "proxy")], 1.0);
        let sinks = reverse.observing.sinks();
        if let Some(metrics) = sinks.and_then(|sinks| sinks.metrics.as_ref()) {
            metrics.write(&mut out);
        }
        connections(reverse, &mut out);
        upstreams(&reverse.list, &mut out);
        if let Some(cache) = &reverse.cache {
            cache.write_metrics(&mut out).await;
        }
        let tunnels = reverse.tally.tunnels_open() as f64;
        out.single("dapple_tunnels_open", Kind::Gauge, "Upgraded connections, such as WebSocket's.", tunnels);
        for (count, name, help) in COUNTERS {
            out.single(name, Kind::Counter, help, reverse.tally.sum(count) as f64);
        }
        if let Some(log) = sinks.and_then(|sinks| sinks.log.as_ref()) {
            let help = "Access log lines that were dropped or could not be written.";
            out.single("dapple_access_log_lines_dropped_total", Kind::Counter, help, log.dropped() as f64);
        }
        workers::write(&reverse.common.handle, &mut out);
        process::write(&mut out);
        out.finish()
    }
}

fn connections(reverse: &Reverse, out: &mut Exposition) {
    let (open, taken) = (reverse.admission.open(), reverse.tally.sum(Count::Accepted));
    out.single("dapple_connections_open", Kind::Gauge, "Open client connections.", open as f64);
    out.single("dapple_connections_total", Kind::Counter, "Client connections accepted.", taken as f64);
    let name = "dapple_connections_refused_total";
    let help = "Connections turned away, by limit, or because the client is not allowed.";
    out.family(name, Kind::Counter, help);
    let strangers = ("stranger", reverse.tally.sum(Count::Strangers));
    for (reason, count) in reverse.admission.refused_by_reason().chain([strangers]) {
        out.sample(name, &[("reason", reason)], count as f64);
    }
}

/// Writes each family, and in it each upstream.
fn upstreams(list: &List, out: &mut Exposition) {
    let (all, stats) = (list.all(), list.stats());
    for (name, help, value) in PICKED_BY {
        out.family(name, Kind::Gauge, help);
        for stats in &stats {
            out.sample(name, &[("upstream", &stats.key)], value(stats));
        }
    }
    for (name, help, value) in GAUGES {
        out.family(name, Kind::Gauge, help);
        for upstream in &*all {
            out.sample(name, &[("upstream", &upstream.name)], value(upstream));
        }
    }
    for (name, help, count, unit) in OF_UPSTREAMS {
        out.family(name, Kind::Counter, help);
        for upstream in &*all {
            let count = count(&upstream.counts).load(Ordering::Relaxed) as f64;
            out.sample(name, &[("upstream", &upstream.name)], count * unit);
        }
    }
}

type PickedBy = (&'static str, &'static str, fn(&ReplicaStats<Arc<str>>) -> f64);

const PICKED_BY: [PickedBy; 3] = [
    ("dapple_upstream_in_service", "1 if an upstream is in service, 0 if not.", |stats| {
        f64::from(u8::from(stats.state == ReplicaState::In))
    }),
    ("dapple_upstream_in_flight", "Requests in flight at an upstream.", |stats| stats.in_flight as f64),
    (
        "dapple_upstream_latency_seconds",
        "Time to the head of a response: a moving average that rises at once and falls slowly.",
        |stats| stats.latency.unwrap_or_default().as_secs_f64(),
    ),
];

type Gauge = (&'static str, &'static str, fn(&Upstream) -> f64);

const GAUGES: [Gauge; 2] = [
    ("dapple_upstream_connections_open", "Connections to an upstream.", |upstream| upstream.connections().0 as f64),
    ("dapple_upstream_connections_idle", "Connections of HTTP/1.1 that wait for a request.", |upstream| {
        upstream.connections().1 as f64
    }),
];

type OfUpstream = (&'static str, &'static str, fn(&Counts) -> &AtomicU64, f64);

const OF_UPSTREAMS: [OfUpstream; 11] = [
    ("dapple_upstream_requests_total", "Tries at an upstream.", |counts| &counts.requests, 1.0),
    ("dapple_upstream_failures_total", "Tries that got no response.", |counts| &counts.failures, 1.0),
    (
        "dapple_upstream_retries_total",
        "Tries for requests that had failed before, here or elsewhere.",
        |counts| &counts.retries,
        1.0,
    ),
    ("dapple_upstream_connects_total", "Connections made.", |counts| &counts.connects, 1.0),
    ("dapple_upstream_reused_total", "Requests on kept connections.", |counts| &counts.reused, 1.0),
    ("dapple_upstream_received_bytes_total", "Bytes of response bodies.", |counts| &counts.received, 1.0),
    ("dapple_upstream_responses_total", "Response heads received.", |counts| &counts.answers, 1.0),
    ("dapple_upstream_response_seconds_total", "Total time to these heads.", |counts| &counts.answers_us, 1e-6),
    ("dapple_upstream_outs_total", "Times that an upstream was taken out of service.", |counts| &counts.outs, 1.0),
    ("dapple_upstream_checks_total", "Health checks.", |counts| &counts.checks, 1.0),
    ("dapple_upstream_checks_failed_total", "Failed health checks.", |counts| &counts.checks_failed, 1.0),
];

/// The counters of all upstreams together, with their names and help texts.
const COUNTERS: [(Count, &str, &str); 3] = [
    (Count::Failed, "dapple_proxy_failed_total", "Requests answered with an error of the proxy."),
    (Count::Tunnels, "dapple_tunnels_total", "Connections upgraded."),
    (Count::TunnelBytes, "dapple_tunnel_bytes_total", "Bytes over upgraded connections, both ways."),
];
