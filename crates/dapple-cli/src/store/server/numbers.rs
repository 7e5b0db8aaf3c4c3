//! The `/metrics` page of a served store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dapple::Handle;
use dapple::store::PartitionStats;

use super::Service;
use crate::observe::metrics::exposition::{Exposition, Kind};
use crate::observe::metrics::listener::Numbers;
use crate::observe::metrics::{connections, process, workers};

/// The metrics of one served store.
pub(super) struct StoreNumbers {
    service: Arc<Service>,
    handle: Handle,
}

impl StoreNumbers {
    pub(super) fn new(service: Arc<Service>, handle: Handle) -> StoreNumbers {
        StoreNumbers { service, handle }
    }
}

impl Numbers for StoreNumbers {
    async fn collect(&self) -> String {
        let (service, mut out) = (&*self.service, Exposition::new());
        out.family("dapple_build_info", Kind::Gauge, "The program; always 1.");
        out.sample("dapple_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("command", "store")], 1.0);
        clients(service, &mut out);
        messages(service, &mut out).await;
        partitions(service, &mut out).await;
        workers::write(&self.handle, &mut out);
        process::write(&mut out);
        out.finish()
    }
}

fn clients(service: &Service, out: &mut Exposition) {
    connections::write(&service.admission, out);
    let accepted = service.next_client.load(Ordering::Relaxed) - 1;
    out.single("dapple_connections_total", Kind::Counter, "Connections accepted.", accepted as f64);
    let name = "dapple_tls_handshakes_total";
    out.family(name, Kind::Counter, "Finished TLS handshakes, by whether they succeeded.");
    for (result, count) in ["ok", "failed"].into_iter().zip(&service.handshakes) {
        out.sample(name, &[("result", result)], count.load(Ordering::Relaxed) as f64);
    }
    let commands = service.commands.load(Ordering::Relaxed) as f64;
    out.single("dapple_store_commands_total", Kind::Counter, "Commands answered.", commands);
    let help = "Memory of unfinished requests and of messages that wait for subscribers.";
    out.single("dapple_store_clients_memory_bytes", Kind::Gauge, help, service.memory.used() as f64);
}

async fn messages(service: &Service, out: &mut Exposition) {
    let counters = service.broker.counters();
    let families = [
        ("dapple_store_messages_published_total", "Messages published.", &counters.published),
        (
            "dapple_store_messages_delivered_total",
            "Messages put into the mailbox of a subscriber.",
            &counters.delivered,
        ),
        ("dapple_store_subscribers_cut_total", "Subscribers disconnected because they did not read.", &counters.cut),
    ];
    for (name, help, count) in families {
        out.single(name, Kind::Counter, help, count.load(Ordering::Relaxed) as f64);
    }
    let (channels, patterns) = service.broker.names().await;
    out.single("dapple_store_channels", Kind::Gauge, "Channels with subscribers.", channels as f64);
    out.single("dapple_store_patterns", Kind::Gauge, "Patterns with subscribers.", patterns as f64);
}

async fn partitions(service: &Service, out: &mut Exposition) {
    let all = service.store.partition_stats().await;
    type Value = fn(&PartitionStats) -> f64;
    let is_stopped: Value = |stats| f64::from(u8::from(stats.is_stopped));
    let families: [(&str, &str, Value); 2] = [
        ("dapple_store_partition_waiting", "Writes that wait for a commit.", |stats| stats.queue_len as f64),
        ("dapple_store_partition_stopped", "Whether the partition takes no writes after an error.", is_stopped),
    ];
    for (name, help, value) in families {
        out.family(name, Kind::Gauge, help);
        for stats in &all {
            out.sample(name, &[("partition", &stats.name)], value(stats));
        }
    }
}
