//! One process with one cache against N copies with N caches, as a shared experiment.

use super::trial;
use crate::experiment::{Column, Experiment, Peer, Plot, Seen, Trial, workers_text};
use crate::usage::Switches;
use crate::web::dapple_program;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(super) struct Shared;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Clients, each with a connection that it keeps.
    pub(super) connections: usize,
    /// Memory for all caches together, in MiB.
    pub(super) cache_mb: u64,
    /// Threads that serve; processes of the copies.
    pub(super) workers: usize,
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The share of the requests that did not reach the origin, in percent.
    pub(super) hit_percent: f64,
    pub(super) origin_per_s: f64,
    pub(super) rate_per_s: f64,
    pub(super) mb_per_s: f64,
    /// User and system time of the proxies.
    pub(super) cpu_us_per_request: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Resident memory of the proxies at the end, in 10^6 bytes.
    pub(super) resident_mb: f64,
    pub(super) errors: u64,
    /// Context switches of the proxies, per request.
    #[serde(flatten)]
    pub(super) switches: Option<Switches>,
    pub(super) secs: f64,
}

impl Experiment for Shared {
    const NAME: &'static str = "shared";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::DappleCopies, Peer::DappleSerial];
    const LEGEND: &'static str = "\
Medians of the runs. 3,000 objects of 1 to 128 KB, asked for by Zipf's law (0.8) through `dapple proxy`; an origin 5 ms away that counts.
Copies: a process for each worker, with its share of the memory, and the clients split among them. Hits: requests that did not reach
the origin. CPU: user and system time of the proxies a request; MB: 10^6 bytes, resident memory at the end. Every body is compared byte
for byte. One worker: the proxy has core 0, load and origin core 1. Two share both cores with these, so compare hits, CPU and tails.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        trial::measure(trial)
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.rate_per_s, of.cpu_us_per_request);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: Some(of.p99_ms * 1e3), switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(60.0 + trial.secs * 6.0)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        match peer {
            Peer::DappleCopies if case.workers == 1 => Some("one copy is the program itself".to_owned()),
            Peer::DappleSerial if case.workers > 1 => Some("everything in one color keeps one worker busy".to_owned()),
            _ => dapple_program().err().map(|error| error.to_string()),
        }
    }

    fn title(case: &Case) -> String {
        format!("shared: {} clients, caches of {} MiB together", case.connections, case.cache_mb)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("workers", case.workers.to_string())]
    }

    fn one_worker(_: &Case) -> Option<Case> {
        None
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "hits %", figure: |of| of.hit_percent, decimals: 1 },
            Column { head: "origin/s", figure: |of| of.origin_per_s, decimals: 0 },
            Column { head: "requests/s", figure: |of| of.rate_per_s, decimals: 0 },
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 1 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_request, decimals: 1 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 2 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 2 },
            Column { head: "MB", figure: |of| of.resident_mb, decimals: 0 },
            Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let part = |case: &Case| workers_text(case.workers);
        vec![Plot {
            stem: "hits",
            y_title: "hits, percent",
            y_log: false,
            figure: |of| of.hit_percent,
            x_title: "MiB of all caches together",
            x: |case| case.cache_mb as usize,
            part,
        }]
    }
}
