//! The summary of a load.

use super::tally::{Part, jain};
use crate::stats::Table;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The summary of a load: one line of JSON. Figures are missing if there were no answers.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Summary {
    pub(crate) connections: usize,
    /// Seconds measured.
    pub(crate) secs: f64,
    /// Answers in the measured time.
    pub(crate) requests: u64,
    pub(crate) rate_per_s: f64,
    /// Bytes of bodies, in 10^6 a second.
    pub(crate) mb_per_s: f64,
    /// From the due time of a request to the last byte of its answer; the first of a connection
    /// includes connecting.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p90_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) p999_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
    /// The time that connecting alone took.
    pub(crate) connect_p99_ms: Option<f64>,
    pub(crate) connect_max_ms: Option<f64>,
    /// Connections made in the measured time.
    pub(crate) connects: u64,
    /// The lateness of the generator itself: of those requests of an open loop for which a client
    /// was free in time.
    pub(crate) late_p99_ms: Option<f64>,
    /// Jain's index over the clients' answers.
    pub(crate) jain: Option<f64>,
    /// Clients without an answer in the measured time.
    pub(crate) starved: usize,
    /// Clients that waited for an answer at the end, and the longest wait.
    pub(crate) waiting: usize,
    pub(crate) waiting_max_ms: f64,
    /// Answers with bodies that were compared byte for byte.
    pub(crate) compared: u64,
    /// Errors by kind, including the warm-up.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The text of the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_example: Option<String>,
    /// User and system time of the generator for each answer.
    pub(crate) own_cpu_us: f64,
}

/// The facts of a load that its clients do not count.
pub(super) struct Frame {
    pub(super) secs: f64,
    pub(super) cpu: Duration,
    pub(super) waiting: (Duration, usize),
}

impl Summary {
    pub(super) fn of(part: &Part, per_client: &[u64], frame: &Frame) -> Summary {
        let requests = part.latency_ns.len();
        let latency = |quantile| (requests > 0).then(|| part.latency_ns.value_at_quantile(quantile) as f64 / 1e6);
        let connects = part.connect_ns.len();
        let connect = |quantile| (connects > 0).then(|| part.connect_ns.value_at_quantile(quantile) as f64 / 1e6);
        let late = !part.late_ns.is_empty();
        Summary {
            connections: per_client.len(),
            secs: frame.secs,
            requests,
            rate_per_s: requests as f64 / frame.secs,
            mb_per_s: part.bytes as f64 / 1e6 / frame.secs,
            p50_ms: latency(0.5),
            p90_ms: latency(0.9),
            p99_ms: latency(0.99),
            p999_ms: latency(0.999),
            max_ms: latency(1.0),
            connect_p99_ms: connect(0.99),
            connect_max_ms: connect(1.0),
            connects,
            late_p99_ms: late.then(|| part.late_ns.value_at_quantile(0.99) as f64 / 1e6),
            jain: Some(jain(per_client)).filter(|index| index.is_finite()),
            starved: per_client.iter().filter(|count| **count == 0).count(),
            waiting: frame.waiting.1,
            waiting_max_ms: frame.waiting.0.as_secs_f64() * 1e3,
            compared: part.compared,
            errors: part.errors.clone(),
            error_example: part.example.clone(),
            own_cpu_us: frame.cpu.as_secs_f64() * 1e6 / requests.max(1) as f64,
        }
    }

    /// Errors of all kinds.
    pub(crate) fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The text for readers.
    pub(super) fn text(&self) -> String {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let mut table = Table::new(&["ms", "p50", "p90", "p99", "p99.9", "max"]);
        let latency = [self.p50_ms, self.p90_ms, self.p99_ms, self.p999_ms, self.max_ms];
        table.row(["latency".to_owned()].into_iter().chain(latency.map(ms)).collect());
        let unknown = || "-".to_owned();
        let connect = [unknown(), unknown(), ms(self.connect_p99_ms), unknown(), ms(self.connect_max_ms)];
        table.row(["connecting".to_owned()].into_iter().chain(connect).collect());
        let mut text = format!(
            "{} requests in {:.1} s: {:.0} a second, {:.1} MB/s; {} connections made\n{}",
            self.requests,
            self.secs,
            self.rate_per_s,
            self.mb_per_s,
            self.connects,
            table.render()
        );
        let jain = self.jain.map_or_else(unknown, |index| format!("{index:.3}"));
        text.push_str(&format!(
            "{} clients: Jain's index {jain}, {} starved; at the end {} waited, the longest for {:.1} ms\n",
            self.connections, self.starved, self.waiting, self.waiting_max_ms
        ));
        text.push_str(&format!("{} bodies compared; {:.2} us CPU a request here\n", self.compared, self.own_cpu_us));
        if let Some(late_ms) = self.late_p99_ms {
            text.push_str(&format!("sent late by the generator itself: p99 {late_ms:.3} ms\n"));
        }
        let errors: Vec<String> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        match &self.error_example {
            Some(example) => text.push_str(&format!("errors: {}; the first: {example}\n", errors.join(", "))),
            None => text.push_str("no errors\n"),
        }
        text
    }
}
