//! A web server under a load, as a shared experiment.

use super::beside;
use super::memory_limit::MemoryLimit;
use super::server::{self, Weather};
use super::site::SiteKind;
use super::trial;
use crate::experiment::{BesidePaper, Column, Experiment, Peer, Plot, Row, Seen, Trial};
use crate::machine::{About, open_files_max};
use crate::usage::Switches;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::time::Duration;

/// The experiment of one workload.
pub(super) struct Web<W>(PhantomData<W>);

/// The differences between the experiments.
pub(super) trait Workload: 'static {
    const NAME: &'static str;
    /// A line above its table.
    const TITLE: &'static str;
    const PEERS: &'static [Peer];
    const PLAN: Plan;
    /// The fate of packets, for peers with a network of their own.
    const WEATHER: Weather = Weather::FAIR;
    /// Numbers of clients.
    const CONNECTIONS: &'static [usize];

    /// Runs one trial: a server and a load, unless it is of another kind.
    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        trial::measure(&Self::PLAN, Self::WEATHER, trial)
    }

    /// The table's columns.
    fn columns() -> Vec<Column<Figures>>;

    /// The plots.
    fn plots() -> Vec<Plot<Case, Figures>> {
        Vec::new()
    }

    /// The papers' figures, for comparison.
    fn beside_paper(_rows: &[WebRow], _about: &About) -> BesidePaper {
        BesidePaper::default()
    }
}

/// The outcome of one trial.
pub(super) type WebRow = Row<Case, Figures>;

/// The setup and load of servers.
pub(super) struct Plan {
    pub(super) site: SiteKind,
    /// Requests over one connection; 0 for any number.
    pub(super) requests: u64,
    /// Memory for files, in servers with a cache of their own.
    pub(super) cache_mb: u64,
    pub(super) tls: bool,
    /// Whether the kernel forgets the files before each run, and there is no warm-up.
    pub(super) cold: bool,
    /// Whether memory is limited.
    pub(super) limited: bool,
    /// Whether the clients of the case read nothing, and a few others are measured.
    pub(super) stalled: bool,
}

impl Plan {
    /// Any number of requests over kept connections, for files that fit into memory.
    pub(super) const fn of(site: SiteKind) -> Plan {
        Plan { site, requests: 0, cache_mb: 256, tls: false, cold: false, limited: false, stalled: false }
    }
}

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Clients, each with a connection.
    pub(super) connections: usize,
    /// Threads that serve; processes of nginx, Apache and the copies.
    pub(super) workers: usize,
    /// The memory limit for the server and the kernel's cache of its files together, in MB (2^20);
    /// `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) memory_mb: Option<u64>,
}

/// The figures of a trial.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) rate_per_s: f64,
    /// Bytes of bodies, in 10^6 a second.
    pub(super) mb_per_s: f64,
    /// User and system time of the server's processes.
    pub(super) cpu_us_per_request: f64,
    pub(super) cpu_ms_per_100_mb: f64,
    /// From the due time of a request to the last byte of its answer; the first of a connection
    /// includes connecting.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
    /// Connections made per second.
    pub(super) connects_per_s: f64,
    pub(super) connect_p99_ms: Option<f64>,
    /// Jain's index over the clients' answers.
    pub(super) jain: f64,
    /// Clients without an answer.
    pub(super) starved: f64,
    /// The longest wait of a client at the end.
    pub(super) waiting_max_ms: f64,
    /// Requests that failed.
    pub(super) errors: u64,
    /// Resident memory of the server's processes at the end, in 10^6 bytes, and its maximum.
    pub(super) resident_mb: f64,
    pub(super) resident_max_mb: f64,
    /// User and system time of the load, per request.
    pub(super) load_cpu_us: f64,
    /// Context switches of the server's processes, per request.
    #[serde(flatten)]
    pub(super) switches: Option<Switches>,
    /// Seconds measured.
    pub(super) secs: f64,
}

impl<W: Workload> Web<W> {
    /// All cases, with these numbers of clients if there are any.
    pub(super) fn cases(connections: &[u32], workers: &[usize], memory_mb: &[u64]) -> Vec<Case> {
        let asked: Vec<usize> = connections.iter().map(|&connections| connections as usize).collect();
        let connections = if asked.is_empty() { W::CONNECTIONS } else { &asked };
        let limits = if W::PLAN.limited { memory_mb } else { &[0] };
        let mut cases = Vec::new();
        for &limit in limits {
            let memory_mb = (limit > 0).then_some(limit);
            let of =
                |&connections: &usize| workers.iter().map(move |&workers| Case { connections, workers, memory_mb });
            cases.extend(connections.iter().flat_map(of));
        }
        cases
    }
}

/// Open files of a server and of the load besides the connections.
const FILES_BESIDE: usize = 256;

impl<W: Workload> Experiment for Web<W> {
    const NAME: &'static str = W::NAME;
    const PEERS: &'static [Peer] = W::PEERS;
    const LEGEND: &'static str = "\
Medians of the runs. CPU: user and system time of the server's processes a request; latency as the client sees it, the first
request of a connection from before connecting; starved: clients without an answer; waits: how long by the end the client has
waited that waits longest; MB: 10^6 bytes, resident memory at the end. Every body is compared byte for byte.
One worker: the server has core 0, the load core 1. Two share both cores with the load, so compare CPU and tails.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        W::measure(trial)
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.rate_per_s, of.cpu_us_per_request);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: Some(of.p99_ms * 1e3), switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(120.0 + trial.secs * 4.0)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        match peer {
            Peer::DappleCopies if case.workers == 1 => Some("one copy is the program itself".to_owned()),
            _ if case.connections + FILES_BESIDE > open_files_max() => Some(format!(
                "{} connections take as many open files, and {} are allowed: raise `ulimit -n`",
                case.connections,
                open_files_max()
            )),
            Peer::DappleSerial if case.workers > 1 => Some("everything in one color keeps one worker busy".to_owned()),
            _ if case.memory_mb.is_some() => server::obstacle(peer).or_else(MemoryLimit::obstacle),
            _ => server::obstacle(peer),
        }
    }

    fn title(case: &Case) -> String {
        let limit = case.memory_mb.map(|limit| format!("; memory limited to {limit} MB, the kernel's cache included"));
        format!("{}{}", W::TITLE, limit.unwrap_or_default())
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("clients", case.connections.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        W::columns()
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        W::plots()
    }

    fn beside_paper(rows: &[WebRow], about: &About) -> BesidePaper {
        let mut beside = W::beside_paper(rows, about);
        beside.tables.splice(0..0, beside::peers(rows));
        beside
    }
}
