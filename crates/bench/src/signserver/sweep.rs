//! Throughput and latency of one server by the number of tasks in flight: Figures 22, 24, 26, 28 and 30 of the thesis.

use super::account::Account;
use super::client::{Client, Load};
use super::figures;
use super::program::{Launch, Secrets};
use super::server::{self, Server, Setting, any_port};
use crate::experiment::{BesidePaper, Column, Experiment, Peer, Plot, Row, Seen, Trial, workers_text};
use crate::machine::{About, Places};
use crate::usage::Switches;
use crate::web::dapple_program;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(super) struct Sweep;

/// The outcome of one trial.
pub(super) type SweepRow = Row<Case, Figures>;

/// The parameters of a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Tasks in flight: the thesis' simultaneous tasks in the pipeline.
    pub(super) in_flight: usize,
    pub(super) connections: usize,
    /// Of each server.
    pub(super) workers: usize,
    /// Whether a task is answered only after its record is on the disk.
    pub(super) sync: bool,
    /// Whether digests are checked in the measured time.
    pub(super) verified: bool,
}

impl Case {
    /// The common part of the cases of one table and one plot.
    pub(super) fn part(&self) -> String {
        let sync = if self.sync { " sync" } else { "" };
        format!("{}{sync}", workers_text(self.workers))
    }

    /// The same, for readers.
    pub(super) fn setting(&self) -> String {
        format!("{}{}", workers_text(self.workers), if self.sync { ", --sync" } else { "" })
    }

    /// The form of answers and checks.
    pub(super) fn manner(&self) -> String {
        let sync =
            if self.sync { "answered when records are on the disk" } else { "answered when records are written" };
        let verified = if self.verified { "" } else { "; digests not compared while it is measured" };
        format!("{sync}{verified}")
    }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) throughput_per_s: f64,
    pub(super) mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// User and system time of the server.
    server_cpu_us_per_task: f64,
    resident_max_mb: f64,
    /// All signed tasks, including the warm-up.
    pub(super) signed: u64,
    /// Records in the log.
    pub(super) records: u64,
    refused: u64,
    /// Context switches of the server, per task.
    #[serde(flatten)]
    switches: Option<Switches>,
    secs: f64,
}

impl Experiment for Sweep {
    const NAME: &'static str = "signserver-sweep";
    const PEERS: &'static [Peer] = server::PEERS;
    const LEGEND: &'static str = "\
Medians of the runs. A closed loop: P tasks of 5,000 bytes are in flight all the time, each answer is followed by the next task. tasks/s:
signed a second; latency from when a task was given to its connection. CPU us: user and system time of the server, a task. Checked:
every task was answered, digests are right, and the log has exactly the records of the tasks that were signed, in order, each with the right sum. Client
and server share the cores where there are not twice as many as workers, and the client compares digests (--unverified: not while it is measured).";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        measure(trial, &Launch::of_built()?)
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.throughput_per_s, of.server_cpu_us_per_task);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: Some(of.p99_ms * 1e3), switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(240.0 + length_secs(trial.secs))
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        dapple_program().err().map(|error| error.to_string())
    }

    fn title(case: &Case) -> String {
        format!("dapple sign; {}", case.manner())
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("workers", case.workers.to_string()), ("P", case.in_flight.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..case.clone() })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "tasks/s", figure: |of| of.throughput_per_s, decimals: 0 },
            Column { head: "mean ms", figure: |of| of.mean_ms, decimals: 3 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 3 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 3 },
            Column { head: "max ms", figure: |of| of.max_ms, decimals: 1 },
            Column { head: "CPU us", figure: |of| of.server_cpu_us_per_task, decimals: 1 },
            Column { head: "MB", figure: |of| of.resident_max_mb, decimals: 0 },
            Column { head: "refused", figure: |of| of.refused as f64, decimals: 0 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![
            plot("throughput", "tasks signed a second", false, |of| of.throughput_per_s),
            plot("latency", "mean latency, ms", true, |of| of.mean_ms),
        ]
    }

    fn beside_paper(rows: &[SweepRow], about: &About) -> BesidePaper {
        BesidePaper { tables: figures::saturation(rows), charts: Vec::new(), curves: figures::curves(rows, about) }
    }
}

fn plot(stem: &'static str, y_title: &'static str, y_log: bool, figure: fn(&Figures) -> f64) -> Plot<Case, Figures> {
    let x_title = "tasks in flight";
    Plot { stem, y_title, y_log, figure, x_title, x: |case| case.in_flight, part: Case::part }
}

/// Warms a new server up, with all digests checked, and measures it.
pub(super) fn measure(trial: &Trial<Case>, launch: &Launch) -> Result<Figures> {
    let case = &trial.case;
    let folder = tempfile::tempdir_in(&trial.file).context("no folder for the log")?;
    let secrets = Secrets::write(folder.path())?;
    let places = Places::of(case.workers);
    let setting = Setting {
        launch,
        variant: trial.peer,
        log: folder.path().join("log"),
        sync: case.sync,
        workers: case.workers,
        cores: &places.server,
        in_flight: case.in_flight,
        secrets: &secrets,
    };
    let server = Server::start(&setting, any_port())?;
    let addrs = [server.address()];
    let load = |secs: f64, secrets| {
        let load = Load { addrs: &addrs, in_flight: case.in_flight, connections: case.connections, secs, secrets };
        Client::start(launch, &places.load, &load)?.finish()
    };
    let warm_up = load(warm_up_secs(trial.secs), Some(&secrets)).context("while it warmed up")?;
    let before = server.usage()?;
    let report = load(trial.secs, case.verified.then_some(&secrets))?;
    let usage = server.usage()?.since(before);
    let resident_max_mb = server.resident_max_mb()?;
    let records = server.stop()?;
    let mut account = Account::default();
    account.add(&warm_up);
    account.add(&report);
    account.check_all_answered(records)?;
    Ok(Figures {
        throughput_per_s: report.throughput_per_s,
        mean_ms: report.latency_us.mean / 1e3,
        p50_ms: report.latency_us.p50 / 1e3,
        p99_ms: report.latency_us.p99 / 1e3,
        max_ms: report.latency_us.max / 1e3,
        server_cpu_us_per_task: usage.cpu.as_secs_f64() * 1e6 / report.signed as f64,
        resident_max_mb,
        signed: account.signed,
        records,
        refused: warm_up.refused + report.refused,
        switches: Some(usage.switches(report.signed)),
        secs: trial.secs,
    })
}

/// The approximate time of a trial, in seconds.
pub(super) fn length_secs(secs: f64) -> f64 {
    warm_up_secs(secs) + secs + START_SECS
}

fn warm_up_secs(secs: f64) -> f64 {
    (secs / 2.0).min(1.0)
}

/// For starting and ending processes.
const START_SECS: f64 = 0.3;
