//! An overloaded server as shared experiments: one that varies the load, one with a load that
//! changes, one with unequal clients.

use super::figures::Figures;
use super::scenario::Scenario;
use super::{server, shares, tables, timeline, trial};
use crate::experiment::{BesidePaper, Column, Experiment, Peer, Plot, Row, Trial, workers_text};
use crate::machine::About;
use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::time::Duration;

/// The experiment of one kind.
pub(super) struct Overload<K>(PhantomData<K>);

/// The differences between the experiments.
pub(super) trait Kind: 'static {
    const NAME: &'static str;

    /// The table's columns.
    fn columns() -> Vec<Column<Figures>>;

    /// The plots.
    fn plots() -> Vec<Plot<Case, Figures>>;
}

/// The outcome of one trial.
pub(super) type OverloadRow = Row<Case, Figures>;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) scenario: Scenario,
    /// The load as a multiple of the server's capacity; `None` if the scenario defines it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) load: Option<f64>,
    /// Threads that serve.
    pub(super) workers: usize,
    pub(super) connections: Connections,
    /// Replies that take longer are not good.
    pub(super) deadline_ms: u64,
    /// Clients close the connection after this time.
    pub(super) give_up_ms: u64,
    /// The assumed capacity of every server, in requests a second; `None` for the measured one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) rate_of: Option<f64>,
    pub(super) peak_secs: f64,
    /// The number of client addresses; 0 lets the kernel choose, which uses one.
    pub(super) sources: u32,
    /// The arrivals' seed in the first repetition; each later one adds one.
    pub(super) seed: u64,
}

/// How clients use connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Connections {
    /// Each request has its own connection
    New,
    /// A connection is used again after its reply; if none is free, the client makes another
    Kept,
}

impl<K: Kind> Experiment for Overload<K> {
    const NAME: &'static str = K::NAME;
    const PEERS: &'static [Peer] = server::PEERS;
    const TITLES_NAME_PARTS: bool = true;
    const LEGEND: &'static str = "\
Medians of the runs. Requests burn CPU in the handler and await nothing; they come at random moments (Poisson), whatever becomes of those
before them, and clients go away after a second (--give-up-ms). Goodput: right replies within the deadline (100 ms, --deadline-ms) a
second. Latency counts from when a request was due. capacity: replies a second of the same server in a closed loop of two clients a worker,
within the five minutes before; of it %: goodput; work %: the CPU time asked for by good replies, of what there was. p50, p99: of right replies, late ones
included. back after: from the end of the peak, when 95 % were well again; peak, after: goodput then, of what the server can do.
refused, ref: 503, in ms. CPU %: user and system time of the server, of one core; peak MB: the most memory
that it had (VmHWM). load CPU %: that of the generator. late: how late it was
itself, p99; figures with * are of runs in which that was more than 2 ms. Every body is compared, and every request came to one end.
One worker: the server has core 0, the load core 1. Two share both cores with the load.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        trial::measure(trial)
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(120.0 + (trial.secs + trial.case.peak_secs) * 4.0)
    }

    fn obstacle(peer: Peer, _: &Case) -> Option<String> {
        server::obstacle(peer)
    }

    fn title(case: &Case) -> String {
        let connections = match case.connections {
            Connections::New => "a connection each",
            Connections::Kept => "kept connections",
        };
        format!("{}; {}; {connections}", case.scenario.title(), workers_text(case.workers))
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        case.load.map(|load| ("load", format!("{load}x"))).into_iter().collect()
    }

    fn one_worker(_: &Case) -> Option<Case> {
        None
    }

    fn columns() -> Vec<Column<Figures>> {
        K::columns()
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        K::plots()
    }

    fn beside_paper(rows: &[OverloadRow], about: &About) -> BesidePaper {
        let mut tables = tables::goodput(rows);
        tables.extend(shares::tables(rows));
        let mut charts = timeline::charts(rows, about);
        charts.extend(shares::charts(rows, about));
        BesidePaper { tables, charts, curves: Vec::new() }
    }

    fn summary(rows: &[OverloadRow]) -> Vec<serde_json::Value> {
        tables::summary(K::NAME, rows)
    }
}

/// The load varies.
pub(super) struct Sweep;

impl Kind for Sweep {
    const NAME: &'static str = "sweep";

    fn columns() -> Vec<Column<Figures>> {
        let mut columns: Vec<Column<Figures>> = vec![
            Column { head: "goodput/s", figure: |of| of.goodput_per_s, decimals: 1 },
            Column { head: "capacity", figure: |of| of.capacity_per_s, decimals: 1 },
            Column { head: "of it %", figure: |of| of.goodput_percent, decimals: 1 },
            Column { head: "work %", figure: |of| of.work_percent, decimals: 1 },
        ];
        columns.extend(latencies());
        columns
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![
            plot("goodput", "right replies within the deadline, a second", |of| of.goodput_per_s),
            plot("share", "goodput, percent of own capacity", |of| of.goodput_percent),
            latency_plot("accepted-p99", "99th percentile of right replies' latency, ms", |of| {
                or_nan(of.accepted_p99_ms)
            }),
            latency_plot("refusal-p99", "99th percentile of refusals' latency, ms", |of| or_nan(of.refusal_p99_ms)),
        ]
    }
}

/// The load or the cost of requests rises for a while.
pub(super) struct Change;

impl Kind for Change {
    const NAME: &'static str = "change";

    fn columns() -> Vec<Column<Figures>> {
        let mut columns: Vec<Column<Figures>> = vec![
            Column { head: "back after ms", figure: |of| or_nan(of.recovered_after_ms), decimals: 0 },
            Column { head: "capacity", figure: |of| of.capacity_per_s, decimals: 1 },
            Column { head: "peak: of it %", figure: |of| phase_percent(of, 0), decimals: 1 },
            Column { head: "after: of it %", figure: |of| phase_percent(of, 1), decimals: 1 },
        ];
        columns.extend(latencies());
        columns
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        Vec::new()
    }
}

/// Clients differ.
pub(super) struct Shares;

impl Kind for Shares {
    const NAME: &'static str = "shares";

    fn columns() -> Vec<Column<Figures>> {
        Sweep::columns()
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        Vec::new()
    }
}

fn latencies() -> Vec<Column<Figures>> {
    vec![
        Column { head: "p50 ms", figure: |of| or_nan(of.accepted_p50_ms), decimals: 1 },
        Column { head: "p99 ms", figure: |of| or_nan(of.accepted_p99_ms), decimals: 1 },
        Column { head: "refused/s", figure: |of| of.refused as f64 / of.secs, decimals: 0 },
        Column { head: "ref p50", figure: |of| or_nan(of.refusal_p50_ms), decimals: 1 },
        Column { head: "ref p99", figure: |of| or_nan(of.refusal_p99_ms), decimals: 1 },
        Column { head: "ref max", figure: |of| or_nan(of.refusal_max_ms), decimals: 1 },
        Column { head: "given up/s", figure: |of| of.given_up as f64 / of.secs, decimals: 0 },
        Column { head: "errors", figure: |of| of.errors as f64, decimals: 0 },
        Column { head: "CPU %", figure: |of| of.server_cpu_percent, decimals: 0 },
        Column { head: "peak MB", figure: |of| of.resident_max_mb, decimals: 0 },
        Column { head: "load CPU %", figure: |of| of.load_cpu_percent, decimals: 0 },
        Column { head: "late ms", figure: |of| of.load_late_p99_ms, decimals: 2 },
    ]
}

fn plot(stem: &'static str, y_title: &'static str, figure: fn(&Figures) -> f64) -> Plot<Case, Figures> {
    let x = |case: &Case| percent(case.load.unwrap_or_default());
    let part = |case: &Case| format!("{} {}", case.scenario, workers_text(case.workers));
    Plot { stem, y_title, y_log: false, figure, x_title: "offered load, percent of own capacity", x, part }
}

/// Latencies range from a few milliseconds to the second after which clients give up.
fn latency_plot(stem: &'static str, y_title: &'static str, figure: fn(&Figures) -> f64) -> Plot<Case, Figures> {
    Plot { y_log: true, ..plot(stem, y_title, figure) }
}

fn phase_percent(of: &Figures, index: usize) -> f64 {
    of.phases.get(index).map_or(f64::NAN, |phase| phase.goodput_percent)
}

fn percent(load: f64) -> usize {
    (load * 100.0).round() as usize
}

fn or_nan(figure: Option<f64>) -> f64 {
    figure.unwrap_or(f64::NAN)
}
