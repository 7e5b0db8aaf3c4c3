//! The result lines and the table of `bench serve`.

use super::Plan;
use super::server::Server;
use crate::output::Report;
use crate::stats::{Table, median, ratio_text};
use crate::words::{checked, verdict};
use anyhow::Result;
use serde::Serialize;

/// What one run measured: one line of JSON.
#[derive(Serialize, Debug)]
pub(crate) struct Measured {
    /// `small`: 100 files of 4 KB, connections kept.
    pub(crate) workload: &'static str,
    /// Who served.
    pub(crate) peer: Server,
    /// Threads, or processes in nginx's case, that served.
    pub(crate) workers: usize,
    /// Connections held open by the load.
    pub(crate) connections: usize,
    /// Number of the repetition, from 0.
    pub(crate) run: usize,
    /// Seconds measured, after the warm-up.
    pub(crate) secs: f64,
    /// Answers per second.
    pub(crate) rate_per_s: f64,
    /// User and system time of the server and its children per answer.
    pub(crate) cpu_us_per_op: f64,
    /// Median latency as wrk sees it.
    pub(crate) p50_ms: f64,
    /// Latency that one answer in a hundred exceeded.
    pub(crate) p99_ms: f64,
    /// Answers other than 2xx and 3xx, socket errors and timeouts.
    pub(crate) errors: u64,
    /// Bodies compared byte for byte while the load ran.
    pub(crate) bodies_compared: u64,
    /// Whether all bodies were right, before and under load, and there were no errors.
    pub(crate) checked: bool,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Measured {
    /// A run that yielded no figures.
    pub(crate) fn failed(plan: &Plan, problem: String) -> Measured {
        Measured {
            workload: "small",
            peer: plan.server,
            workers: plan.workers,
            connections: 0,
            run: plan.run,
            secs: 0.0,
            rate_per_s: 0.0,
            cpu_us_per_op: 0.0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            errors: 0,
            bodies_compared: 0,
            checked: false,
            problem: Some(problem),
        }
    }
}

/// The table: medians of the repetitions.
pub(crate) fn report(all: &[Measured], runs: u32, secs: u32) -> Report {
    let mut table = Table::new(&[
        "peer",
        "workers",
        "requests/s",
        "us CPU",
        "p50 ms",
        "p99 ms",
        "errors",
        "vs nginx",
        "CPU vs nginx",
        "checked",
    ]);
    let mut counts: Vec<usize> = all.iter().map(|run| run.workers).collect();
    counts.sort_unstable();
    counts.dedup();
    for workers in counts {
        for server in Server::ALL {
            let own: Vec<&Measured> = all.iter().filter(|run| run.peer == server && run.workers == workers).collect();
            if !own.is_empty() {
                table.row(row(all, &own));
            }
        }
    }
    Report {
        runs: format!("{runs} of {secs} s each, the servers by turns"),
        tables: vec![("small: 4 KB files over kept connections".to_owned(), table)],
        legend: "Medians; ratios are medians of paired runs.",
    }
}

fn row(all: &[Measured], own: &[&Measured]) -> Vec<String> {
    let middle = |figure: fn(&Measured) -> f64| median(&own.iter().map(|run| figure(run)).collect::<Vec<_>>());
    let against_nginx = |figure: fn(&Measured) -> f64| {
        let pair = |run: &Measured| {
            let same =
                |other: &&Measured| other.peer == Server::Nginx && other.run == run.run && other.workers == run.workers;
            all.iter().find(same).map(|nginx| figure(run) / figure(nginx))
        };
        let ratios: Vec<f64> = own.iter().filter_map(|run| pair(run)).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    };
    vec![
        own[0].peer.name(),
        own[0].workers.to_string(),
        format!("{:.0}", middle(|run| run.rate_per_s)),
        format!("{:.1}", middle(|run| run.cpu_us_per_op)),
        format!("{:.2}", middle(|run| run.p50_ms)),
        format!("{:.2}", middle(|run| run.p99_ms)),
        own.iter().map(|run| run.errors).sum::<u64>().to_string(),
        ratio_text(against_nginx(|run| run.rate_per_s)),
        ratio_text(against_nginx(|run| run.cpu_us_per_op)),
        checked(own.iter().map(|run| run.checked)),
    ]
}

/// An error that names the runs whose check failed.
pub(crate) fn check(all: &[Measured]) -> Result<()> {
    let describe = |run: &Measured| {
        format!(
            "{} workers={} run={}: {}",
            run.peer.name(),
            run.workers,
            run.run,
            run.problem.as_deref().unwrap_or("check failed")
        )
    };
    verdict(all, |run| (!run.checked).then(|| describe(run)))
}
