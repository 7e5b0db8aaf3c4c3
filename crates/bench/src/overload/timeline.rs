//! Goodput over time, of loads that change in the measured time.

use super::experiment::{Case, OverloadRow};
use super::figures::BIN_MS;
use crate::chart::{Chart, Series, Spread};
use crate::experiment::{runs_text, workers_text};
use crate::machine::About;
use crate::words::name;

/// A chart for each case with a change: a line per server.
pub(super) fn charts(rows: &[OverloadRow], about: &About) -> Vec<(String, Chart)> {
    let mut cases: Vec<Case> = Vec::new();
    for row in rows {
        let has_course = row.figures.as_ref().is_some_and(|of| !of.per_100_ms.is_empty());
        if has_course && !cases.contains(&row.case) {
            cases.push(row.case);
        }
    }
    cases.iter().map(|case| (stem(case), chart(rows, case, about))).collect()
}

fn stem(case: &Case) -> String {
    let load = case.load.map(|load| format!("-{}", (load * 100.0).round())).unwrap_or_default();
    format!("over-time-{}{load}-{}", case.scenario, workers_text(case.workers).replace(' ', "-"))
}

fn chart(rows: &[OverloadRow], case: &Case, about: &About) -> Chart {
    let own: Vec<&OverloadRow> = rows.iter().filter(|row| row.checked && row.case == *case).collect();
    let steps = own.iter().map(|row| goodput(row).len()).max().unwrap_or(0);
    let runs = own.iter().map(|row| row.run + 1).max().unwrap_or(0);
    let mut series = Vec::new();
    for peer in super::server::PEERS {
        let lines: Vec<Vec<f64>> = own.iter().filter(|row| row.peer == *peer).map(|row| goodput(row)).collect();
        if !lines.is_empty() {
            let at = |step: usize| Spread::of(lines.iter().filter_map(|line| line.get(step)).copied());
            series.push(Series { label: name(*peer), style: peer.style(), points: (0..steps).map(at).collect() });
        }
    }
    let load = case.load.map(|load| format!("; {load}x")).unwrap_or_default();
    Chart {
        title: format!("{}; {}{load}", case.scenario.title(), workers_text(case.workers)),
        footer: format!(
            "{}; kernel {}; commit {}; {}: median, with least and most",
            about.machine,
            about.kernel,
            about.commit,
            runs_text(runs)
        ),
        x_title: format!("when requests came, s{}", own.iter().find_map(|row| peak(row)).unwrap_or_default()),
        y_title: "right replies within the deadline, a second".to_owned(),
        y_log: false,
        groups: (0..steps).collect(),
        group_names: (0..steps).map(|step| (step as f64 * STEP_SECS).to_string()).collect(),
        series,
        bars_wanted: false,
    }
}

/// Good replies a second, step by step.
fn goodput(row: &OverloadRow) -> Vec<f64> {
    let bins = row.figures.as_ref().map_or(&[][..], |of| &of.per_100_ms);
    bins.chunks_exact(STEP_BINS)
        .map(|bins| bins.iter().map(|[_, good, _]| *good).sum::<u64>() as f64 / STEP_SECS)
        .collect()
}

/// The begin and the end of the change.
fn peak(row: &OverloadRow) -> Option<String> {
    let measured: Vec<f64> = row.figures.as_ref()?.phases.iter().map(|phase| phase.secs).collect();
    row.case.scenario.peak(&measured)
}

/// Half a second: a tenth has too few requests for a readable line.
const STEP_BINS: usize = 5;
const STEP_SECS: f64 = (STEP_BINS * BIN_MS) as f64 / 1e3;
