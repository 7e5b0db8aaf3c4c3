//! The thesis' figures, drawn again, and its numbers compared with today's.

use super::failover::FailoverRow;
use super::server::PEERS;
use super::sweep::{Case, Figures, SweepRow};
use crate::chart::{Chart, Curve, Curves, Panel, Point, Series, Spread};
use crate::experiment::Peer;
use crate::machine::About;
use crate::stats::{Table, median, ratio_text};
use crate::words::name;

/// The thesis' figures for one variant.
struct Thesis {
    peer: Peer,
    figure: u32,
    /// Tasks per second at saturation (section 4.4).
    saturated_per_s: f64,
}

const THESIS: [Thesis; 4] = [
    Thesis { peer: Peer::Threaded, figure: 22, saturated_per_s: 750.0 },
    Thesis { peer: Peer::Wrapped, figure: 24, saturated_per_s: 1_000.0 },
    Thesis { peer: Peer::Pipelined, figure: 26, saturated_per_s: 1_200.0 },
    Thesis { peer: Peer::Replicated, figure: 28, saturated_per_s: 1_800.0 },
];

/// A table for each setting: the highest throughput of each variant, and its share at the most
/// tasks in flight.
pub(super) fn saturation(rows: &[SweepRow]) -> Vec<(String, Table)> {
    settings(rows.iter().map(|row| &row.case)).iter().map(|case| saturation_of(rows, case)).collect()
}

fn saturation_of(rows: &[SweepRow], case: &Case) -> (String, Table) {
    let head =
        ["variant", "thesis/s", "to the one above", "best/s", "at P", "to the one above", "most P", "of the best %"];
    let mut table = Table::new(&head);
    let mut above: Option<(f64, f64)> = None;
    for thesis in &THESIS {
        let points = points(rows, thesis.peer, case);
        let Some(best) = points.iter().max_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median)) else {
            continue;
        };
        let (best, at) = (best.throughput.median, best.in_flight);
        let most = points.last().map_or((0, f64::NAN), |point| (point.in_flight, point.throughput.median));
        table.row(vec![
            name(thesis.peer),
            format!("{:.0}", thesis.saturated_per_s),
            ratio_text(above.map(|(paper, _)| thesis.saturated_per_s / paper)),
            format!("{best:.0}"),
            at.to_string(),
            ratio_text(above.map(|(_, today)| best / today)),
            most.0.to_string(),
            format!("{:.0}", 100.0 * most.1 / best),
        ]);
        above = Some((thesis.saturated_per_s, best));
    }
    (format!("the thesis (section 4.4) beside today; {}", case.setting()), table)
}

/// For each setting one file per variant, with the thesis' curve, and one with the parametric
/// curves of all of them.
pub(super) fn curves(rows: &[SweepRow], about: &About) -> Vec<(String, Curves)> {
    let mut files = Vec::new();
    for case in settings(rows.iter().map(|row| &row.case)) {
        let runs = rows.iter().map(|row| row.run + 1).max().unwrap_or(0);
        let part = case.part().replace(' ', "-");
        let mut all = Vec::new();
        for thesis in &THESIS {
            let points = points(rows, thesis.peer, &case);
            if points.is_empty() {
                continue;
            }
            let panels = vec![by_load(thesis.peer, &points, false), by_load(thesis.peer, &points, true)];
            let own = parametric(vec![parametric_curve(thesis.peer, &points)]);
            let title =
                format!("dapple sign, {} (thesis, Figure {}); {}", name(thesis.peer), thesis.figure, case.setting());
            let panels = panels.into_iter().chain([own]).collect();
            let stem = format!("figure-{}-{}-{part}", thesis.figure, name(thesis.peer));
            files.push((stem, Curves { title, footer: footer(about, runs), panels }));
            all.push(parametric_curve(thesis.peer, &points));
        }
        let title = format!("dapple sign, all variants (thesis, Figure 30); {}", case.setting());
        let panels = vec![parametric(all)];
        files.push((format!("figure-30-all-{part}"), Curves { title, footer: footer(about, runs), panels }));
    }
    files
}

/// For each setting a chart of throughput over time, with a line per variant.
pub(super) fn over_time(rows: &[FailoverRow], about: &About) -> Vec<(String, Chart)> {
    let of_case = |case: &Case| {
        let own: Vec<&FailoverRow> = rows.iter().filter(|row| row.checked && row.case == *case).collect();
        // Whole seconds: the last one may be incomplete.
        let whole = |of: &super::failover::Figures| of.signed_each_s.len().min(of.secs as usize);
        let seconds = own.iter().filter_map(|row| row.figures.as_ref()).map(whole).max().unwrap_or(0);
        let series = PEERS.iter().filter_map(|&peer| over_time_of(&own, peer, seconds)).collect();
        let at = |figure: fn(&super::failover::Figures) -> f64| {
            median(&own.iter().filter_map(|row| row.figures.as_ref()).map(figure).collect::<Vec<f64>>())
        };
        let (killed, back) = (at(|of| of.killed_after_s), at(|of| of.back_after_s));
        let runs = own.iter().map(|row| row.run + 1).max().unwrap_or(0);
        let chart = Chart {
            title: format!(
                "dapple sign, one of two killed after {killed:.1} s, back after {back:.1} s (thesis, Figure 29); {}",
                case.setting()
            ),
            footer: footer(about, runs),
            x_title: "seconds".to_owned(),
            y_title: "tasks signed in that second".to_owned(),
            y_log: false,
            groups: (0..seconds).collect(),
            group_names: Vec::new(),
            series,
            bars_wanted: false,
        };
        (format!("figure-29-over-time-{}", case.part().replace(' ', "-")), chart)
    };
    settings(rows.iter().map(|row| &row.case)).iter().map(of_case).collect()
}

fn over_time_of(own: &[&FailoverRow], peer: Peer, seconds: usize) -> Option<Series> {
    let lines: Vec<&[u64]> = own
        .iter()
        .filter(|row| row.peer == peer)
        .filter_map(|row| Some(row.figures.as_ref()?.signed_each_s.as_slice()))
        .collect();
    // A list ends with the last second in which a task was signed.
    let of = |line: &&[u64], second: usize| line.get(second).copied().unwrap_or(0) as f64;
    let at = |second: usize| Spread::of(lines.iter().map(|line| of(line, second)));
    let points = (0..seconds).map(at).collect();
    (!lines.is_empty()).then(|| Series { label: name(peer), style: peer.style(), points })
}

/// The measurements of one variant with this many tasks in flight.
struct Measured {
    in_flight: usize,
    throughput: Spread,
    mean_ms: Spread,
}

/// In ascending order of tasks in flight; of runs that passed their check.
fn points(rows: &[SweepRow], peer: Peer, setting: &Case) -> Vec<Measured> {
    let own: Vec<&SweepRow> = rows
        .iter()
        .filter(|row| row.checked && row.peer == peer && row.case.part() == setting.part() && row.figures.is_some())
        .collect();
    let mut all: Vec<usize> = own.iter().map(|row| row.case.in_flight).collect();
    all.sort_unstable();
    all.dedup();
    let measured = |in_flight: usize| {
        let spread = |figure: fn(&Figures) -> f64| {
            let of = own.iter().filter(|row| row.case.in_flight == in_flight);
            Spread::of(of.filter_map(|row| row.figures.as_ref()).map(figure))
        };
        Some(Measured { in_flight, throughput: spread(|of| of.throughput_per_s)?, mean_ms: spread(|of| of.mean_ms)? })
    };
    all.into_iter().filter_map(measured).collect()
}

/// Throughput or latency by the number of tasks in flight.
fn by_load(peer: Peer, points: &[Measured], latency: bool) -> Panel {
    let point = |of: &Measured| {
        let in_flight = of.in_flight as f64;
        let x = Spread { least: in_flight, median: in_flight, most: in_flight };
        Point { x, y: if latency { of.mean_ms } else { of.throughput }, label: String::new() }
    };
    let curve = Curve { label: name(peer), style: peer.style(), points: points.iter().map(point).collect() };
    Panel {
        x_title: "tasks in flight".to_owned(),
        y_title: if latency { "mean latency, ms" } else { "tasks signed a second" }.to_owned(),
        x_log: true,
        y_log: latency,
        labeled: false,
        curves: vec![curve],
    }
}

fn parametric(curves: Vec<Curve>) -> Panel {
    Panel {
        x_title: "tasks signed a second".to_owned(),
        y_title: "mean latency, ms; beside the points: tasks in flight".to_owned(),
        x_log: false,
        y_log: true,
        labeled: true,
        curves,
    }
}

fn parametric_curve(peer: Peer, points: &[Measured]) -> Curve {
    let point = |of: &Measured| Point { x: of.throughput, y: of.mean_ms, label: of.in_flight.to_string() };
    Curve { label: name(peer), style: peer.style(), points: points.iter().map(point).collect() }
}

/// One case of each setting, in their order.
fn settings<'a>(cases: impl Iterator<Item = &'a Case>) -> Vec<Case> {
    let mut settings: Vec<Case> = Vec::new();
    for case in cases {
        if !settings.iter().any(|other| other.part() == case.part()) {
            settings.push(case.clone());
        }
    }
    settings
}

fn footer(about: &About, runs: usize) -> String {
    format!(
        "{}; kernel {}; commit {}; {runs} runs: median, with least and most",
        about.machine, about.kernel, about.commit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        let [kernel, commit, date, command] = [(); 4].map(|()| String::new());
        About { machine: "a machine".to_owned(), kernel, commit, date, command, busy: None }
    }

    /// A row as trials return it.
    fn row<F: serde::de::DeserializeOwned>(
        peer: Peer,
        case: Case,
        run: usize,
        figures: serde_json::Value,
    ) -> crate::experiment::Row<Case, F> {
        let figures = serde_json::from_value(figures).expect("they are figures");
        crate::experiment::Row::of_test(peer, case, run, figures)
    }

    fn case(in_flight: usize, sync: bool) -> Case {
        Case { in_flight, connections: 1, workers: 2, sync, verified: true }
    }

    fn sweep(peer: Peer, in_flight: usize, throughput: f64) -> SweepRow {
        let figures = serde_json::json!({
            "throughput_per_s": throughput, "mean_ms": 1.5, "p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0, "server_cpu_us_per_task": 9.0,
            "resident_max_mb": 5.0, "signed": 10, "records": 10, "refused": 0, "secs": 1.0,
        });
        row(peer, case(in_flight, false), 0, figures)
    }

    #[test]
    fn the_best_stands_beside_the_thesis() {
        let rows = [
            sweep(Peer::Threaded, 1, 100.0),
            sweep(Peer::Threaded, 8, 400.0),
            sweep(Peer::Threaded, 64, 300.0),
            sweep(Peer::Wrapped, 64, 500.0),
            sweep(Peer::Wrapped, 8, 600.0),
        ];
        let tables = saturation(&rows);
        assert_eq!(tables.len(), 1);
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let lines: Vec<Vec<String>> = tables[0].1.render().lines().skip(1).map(cells).collect();
        assert_eq!(lines[0], ["threaded", "750", "-", "400", "8", "-", "64", "75"]);
        assert_eq!(lines[1], ["wrapped", "1000", "1.33x", "600", "8", "1.50x", "64", "83"]);
    }

    #[test]
    fn each_variant_has_its_figure_and_all_have_one() {
        let mut rows = vec![sweep(Peer::Threaded, 1, 100.0), sweep(Peer::Pipelined, 8, 400.0)];
        rows[0].case.sync = true;
        rows.push(sweep(Peer::Threaded, 16, 90.0));
        let drawn = curves(&rows, &about());
        let stems: Vec<&str> = drawn.iter().map(|(stem, _)| stem.as_str()).collect();
        let plain = ["figure-22-threaded-2-workers", "figure-26-pipelined-2-workers", "figure-30-all-2-workers"];
        assert_eq!(stems[..2], ["figure-22-threaded-2-workers-sync", "figure-30-all-2-workers-sync"]);
        assert_eq!(stems[2..], plain);
        let svg = drawn[4].1.svg().expect("it is drawn");
        assert!(["Figure 30", "threaded", "pipelined", "a machine"].iter().all(|text| svg.contains(text)), "{svg}");
        assert_eq!(drawn[2].1.panels.len(), 3);
    }

    #[test]
    fn seconds_in_which_nothing_was_signed_are_drawn() {
        let figures = |each: &[u64]| {
            serde_json::json!({
                "before_per_s": 8.0, "down_per_s": null, "after_per_s": 9.0, "p99_ms": 1.0, "max_ms": 2.0, "signed": 20, "refused": 0,
                "failed": 0, "lost": 1, "connection_errors": 1, "records": 21, "records_when_killed": 3, "records_of_killed": 9,
                "killed_after_s": 1.0, "back_after_s": 2.1, "signed_each_s": each, "secs": 3.4,
            })
        };
        let rows: Vec<FailoverRow> = vec![
            row(Peer::Wrapped, case(8, true), 0, figures(&[8, 4])),
            // The load ended early in a fourth second.
            row(Peer::Wrapped, case(8, true), 1, figures(&[8, 6, 9, 1])),
        ];
        let drawn = over_time(&rows, &about());
        assert_eq!(drawn.len(), 1);
        let (stem, chart) = &drawn[0];
        assert_eq!(
            (stem.as_str(), chart.groups.len(), chart.series.len()),
            ("figure-29-over-time-2-workers-sync", 3, 1)
        );
        assert_eq!(chart.series[0].points[1], Some(Spread { least: 4.0, median: 5.0, most: 6.0 }));
        assert_eq!(chart.series[0].points[2], Some(Spread { least: 0.0, median: 4.5, most: 9.0 }));
        assert!(chart.title.contains("killed after 1.0 s, back after 2.1 s"), "{}", chart.title);
    }
}
