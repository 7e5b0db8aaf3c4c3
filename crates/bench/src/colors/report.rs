//! The table of `bench colors`.

use super::case::{Case, Peer, Workload};
use super::trial::Measured;
use crate::stats::{Table, median, ratio_text};
use clap::ValueEnum;
use std::collections::BTreeSet;

/// A peer's name, as on the command line.
pub(crate) fn peer_name(peer: Peer) -> String {
    peer.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A workload's name, as on the command line.
pub(crate) fn workload_name(workload: Workload) -> String {
    workload.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One line about a run whose check failed.
pub(crate) fn failure(run: &Measured) -> String {
    format!(
        "{} {} workers={} in_flight={} work_ns={} run={}: {}",
        workload_name(run.case.workload),
        peer_name(run.peer),
        run.workers,
        run.case.in_flight,
        run.case.work_ns,
        run.run,
        run.problem.as_deref().unwrap_or("check failed"),
    )
}

/// A table per case: medians, the ratio to tokio's channels with as many workers, and the peer's own regret.
pub(crate) fn text(all: &[Measured]) -> String {
    let mut cases: Vec<Case> = Vec::new();
    for run in all {
        if !cases.contains(&run.case) {
            cases.push(run.case);
        }
    }
    let mut text = String::new();
    for case in cases {
        let runs: Vec<&Measured> = all.iter().filter(|run| run.case == case).collect();
        text.push_str(&format!("\n{}\n{}", case.title(), case_table(&runs).render()));
    }
    text.push_str(LEGEND);
    text
}

const LEGEND: &str = "
M/s, ns CPU: medians. vs mpsc: against tokio-mpsc with as many workers, median of paired runs. vs fewer: against the
peer's own best with fewer workers; CPU vs: against its own run with the fewest. REGRET marks a rate below 0.95x or CPU
above 1.5x.
";

fn case_table(runs: &[&Measured]) -> Table {
    let mut table =
        Table::new(&["peer", "workers", "M/s", "min", "max", "ns CPU", "vs mpsc", "vs fewer", "CPU vs", "checked", ""]);
    let fewest = runs.iter().map(|run| run.workers).min().unwrap_or(1);
    for peer in Peer::ALL {
        let mut counts: Vec<usize> = runs.iter().filter(|run| run.peer == peer).map(|run| run.workers).collect();
        counts.sort_unstable();
        counts.dedup();
        for workers in counts {
            table.row(row(runs, peer, workers, fewest));
        }
    }
    table
}

fn row(runs: &[&Measured], peer: Peer, workers: usize, fewest: usize) -> Vec<String> {
    let own = select(runs, peer, workers);
    let rates: Vec<f64> = own.iter().map(|run| run.rate_per_s / 1e6).collect();
    let cpu: Vec<f64> = own.iter().map(|run| run.cpu_ns_per_op).collect();
    let rate = |run: &Measured| run.rate_per_s;
    let mpsc = paired(&own, &select(runs, Peer::TokioMpsc, workers), rate);
    let base = select(runs, peer, fewest);
    // The rate against the best of any fewer workers, so the least of the ratios.
    let fewer: BTreeSet<usize> = runs.iter().map(|run| run.workers).filter(|count| *count < workers).collect();
    let more = fewer.iter().filter_map(|&count| paired(&own, &select(runs, peer, count), rate)).min_by(f64::total_cmp);
    let costlier = if workers == fewest { None } else { paired(&own, &base, |run| run.cpu_ns_per_op) };
    let regret = more.is_some_and(|ratio| ratio < 0.95) || costlier.is_some_and(|ratio| ratio > 1.5);
    let checked = match own.iter().filter(|run| !run.checked).count() {
        0 => "yes".to_owned(),
        failed => format!("{failed} FAILED"),
    };
    vec![
        peer_name(peer),
        workers.to_string(),
        format!("{:.2}", median(&rates)),
        format!("{:.2}", rates.iter().copied().fold(f64::INFINITY, f64::min)),
        format!("{:.2}", rates.iter().copied().fold(0.0, f64::max)),
        format!("{:.1}", median(&cpu)),
        ratio_text(mpsc),
        ratio_text(more),
        ratio_text(costlier),
        checked,
        if regret { "REGRET".to_owned() } else { String::new() },
    ]
}

fn select<'a>(runs: &[&'a Measured], peer: Peer, workers: usize) -> Vec<&'a Measured> {
    runs.iter().copied().filter(|run| run.peer == peer && run.workers == workers).collect()
}

/// The median of the ratios of runs of the same repetition: what drifts between repetitions cancels out.
fn paired(own: &[&Measured], base: &[&Measured], figure: impl Fn(&Measured) -> f64) -> Option<f64> {
    let ratios: Vec<f64> = own
        .iter()
        .filter_map(|run| {
            let other = base.iter().find(|other| other.run == run.run)?;
            Some(figure(run) / figure(other))
        })
        .collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}
