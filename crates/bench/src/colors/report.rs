//! The table of `bench colors`.

use super::case::{Case, Peer, Placement};
use super::trial::{Measured, TrialArgs};
use crate::output::Report;
use crate::stats::{Table, median, paired, ratio_text};
use crate::words::{checked, name};

/// The peer, its workers and its placement: a short name of a trial within its case.
pub(crate) fn place_name(trial: &TrialArgs) -> String {
    match trial.placement {
        Some(placement) => format!("{}/{}w/{}", name(trial.peer), trial.workers, name(placement)),
        None => format!("{}/{}w", name(trial.peer), trial.workers),
    }
}

/// One line about a run, if its check failed.
pub(crate) fn failure(run: &Measured) -> Option<String> {
    if run.checked {
        return None;
    }
    Some(format!(
        "{} {} workers={} placement={} in_flight={} work_ns={} run={}: {}",
        name(run.case.workload),
        name(run.peer),
        run.workers,
        placement_name(run.placement),
        run.case.in_flight,
        run.case.work_ns,
        run.run,
        run.problem.as_deref().unwrap_or("check failed"),
    ))
}

fn placement_name(placement: Option<Placement>) -> String {
    placement.map_or_else(|| "-".to_owned(), name)
}

/// A table per case: medians, the ratio to the best of the others, and the peer's own regret.
pub(crate) fn report(all: &[Measured], runs: u32, secs: f64) -> Report {
    let cases = Case::of_runs(all.iter().map(|run| run.case));
    let tables = cases.iter().map(|case| {
        let runs: Vec<&Measured> = all.iter().filter(|run| run.case == *case).collect();
        (case.title(), case_table(&runs))
    });
    Report { runs: format!("{runs} of {secs} s each, the peers by turns"), tables: tables.collect(), legend: LEGEND }
}

const LEGEND: &str = "\
start: where the colors were at home at first, - where there is no choice. M/s, ns CPU: medians. vs best: the rate against
the best other peer with as many workers. vs 1w, CPU vs 1w: rate and CPU against the peer's own one worker, which is what
a second one must not cost; REGRET marks a rate below 0.95x or CPU above 1.5x. Ratios are medians of paired runs.";

/// Runs of one row: the same peer on as many workers from the same placement.
type Row = (Peer, usize, Option<Placement>);

fn row_of(run: &Measured) -> Row {
    (run.peer, run.workers, run.placement)
}

fn case_table(runs: &[&Measured]) -> Table {
    let mut table = Table::new(&[
        "peer",
        "workers",
        "start",
        "M/s",
        "min",
        "max",
        "ns CPU",
        "vs best",
        "vs 1w",
        "CPU vs 1w",
        "checked",
        "",
    ]);
    for row in rows(runs) {
        table.row(cells(runs, row));
    }
    table
}

/// The rows that have runs, by peer, workers and placement.
fn rows(runs: &[&Measured]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        if !rows.contains(&row_of(run)) {
            rows.push(row_of(run));
        }
    }
    rows.sort_by_key(|&(peer, workers, placement)| (peer as usize, workers, placement.map(|place| place as usize)));
    rows
}

fn cells(runs: &[&Measured], row: Row) -> Vec<String> {
    let own = select(runs, row);
    let (peer, workers, placement) = row;
    let rates: Vec<f64> = own.iter().map(|run| run.rate_per_s / 1e6).collect();
    let cpu: Vec<f64> = own.iter().map(|run| run.cpu_ns_per_op).collect();
    let against = |base: &[&Measured], figure: fn(&Measured) -> f64| paired(&own, base, |run| run.run, figure);
    let rate = |run: &Measured| run.rate_per_s;
    let others = rows(runs).into_iter().filter(|other| other.0 != peer && other.1 == workers);
    // Against the best of the others, so the least of the ratios.
    let against_best = others.filter_map(|other| against(&select(runs, other), rate)).min_by(f64::total_cmp);
    let one = if workers == 1 { Vec::new() } else { select(runs, (peer, 1, None)) };
    let (more, costlier) = (against(&one, rate), against(&one, |run| run.cpu_ns_per_op));
    let regret = more.is_some_and(|ratio| ratio < 0.95) || costlier.is_some_and(|ratio| ratio > 1.5);
    vec![
        name(peer),
        workers.to_string(),
        placement_name(placement),
        format!("{:.2}", median(&rates)),
        format!("{:.2}", rates.iter().copied().fold(f64::INFINITY, f64::min)),
        format!("{:.2}", rates.iter().copied().fold(0.0, f64::max)),
        format!("{:.1}", median(&cpu)),
        ratio_text(against_best),
        ratio_text(more),
        ratio_text(costlier),
        checked(own.iter().map(|run| run.checked)),
        if regret { "REGRET".to_owned() } else { String::new() },
    ]
}

fn select<'a>(runs: &[&'a Measured], row: Row) -> Vec<&'a Measured> {
    runs.iter().copied().filter(|run| row_of(run) == row).collect()
}
