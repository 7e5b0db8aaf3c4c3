//! Throughput over time while one of two servers is killed and restarted: Figure 29 of the thesis.
//!
//! As there, the servers share nothing: each has its own log, and the client spreads its
//! connections over both.

use super::SERVERS;
use super::account::Account;
use super::client::{Client, Load, Report};
use super::figures;
use super::program::{Launch, Secrets};
use super::server::{self, Server, Setting, any_port};
use super::sweep::Case;
use crate::experiment::{BesidePaper, Column, Experiment, Peer, Plot, Row, Trial};
use crate::machine::{About, Places};
use crate::web::dapple_program;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

pub(super) struct Failover;

/// The outcome of one trial.
pub(super) type FailoverRow = Row<Case, Figures>;

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// With both servers; these three cover whole seconds, and are missing if there was none.
    before_per_s: Option<f64>,
    /// With one.
    down_per_s: Option<f64>,
    /// With both again.
    after_per_s: Option<f64>,
    p99_ms: f64,
    max_ms: f64,
    pub(super) signed: u64,
    refused: u64,
    pub(super) failed: u64,
    /// Not answered, because the server was killed.
    pub(super) lost: u64,
    pub(super) connection_errors: u64,
    /// In both logs.
    pub(super) records: u64,
    /// In the log of the killed server, at that time, and at the end.
    pub(super) records_when_killed: u64,
    pub(super) records_of_killed: u64,
    pub(super) killed_after_s: f64,
    /// When it listened again.
    pub(super) back_after_s: f64,
    pub(super) signed_each_s: Vec<u64>,
    pub(super) secs: f64,
}

impl Experiment for Failover {
    const NAME: &'static str = "signserver-failover";
    const PEERS: &'static [Peer] = server::PEERS;
    const LEGEND: &'static str = "\
Medians of the runs. Two servers of the variant, each a process with a log of its own; the client's connections are spread over both. One is
killed (SIGKILL), and started again at the same address with the same log after as long as there were two. before, one, after: tasks signed
a second then, from a second after the return on. lost: sent and not answered, which the client knows of. Checked: digests are right, and no accepted
task is lost without the client knowing: signed <= records in both logs <= signed + lost + failed; the client noticed, and the server that came back
signed again.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        measure(trial, &Launch::of_built()?)
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(240.0 + length_secs(trial.secs))
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        dapple_program().err().map(|error| error.to_string())
    }

    fn title(case: &Case) -> String {
        format!("one of two servers is killed and comes back; {} in flight; {}", case.in_flight, case.manner())
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("workers", case.workers.to_string())]
    }

    fn one_worker(_: &Case) -> Option<Case> {
        None
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "before/s", figure: |of| of.before_per_s.unwrap_or(f64::NAN), decimals: 0 },
            Column { head: "one/s", figure: |of| of.down_per_s.unwrap_or(f64::NAN), decimals: 0 },
            Column { head: "after/s", figure: |of| of.after_per_s.unwrap_or(f64::NAN), decimals: 0 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 3 },
            Column { head: "max ms", figure: |of| of.max_ms, decimals: 1 },
            Column { head: "signed", figure: |of| of.signed as f64, decimals: 0 },
            Column { head: "records", figure: |of| of.records as f64, decimals: 0 },
            Column { head: "lost", figure: |of| of.lost as f64, decimals: 0 },
            Column { head: "refused", figure: |of| of.refused as f64, decimals: 0 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        Vec::new()
    }

    fn beside_paper(rows: &[FailoverRow], about: &About) -> BesidePaper {
        BesidePaper { charts: figures::over_time(rows, about), ..BesidePaper::default() }
    }
}

/// Loads two servers, kills the first, and starts it again.
pub(super) fn measure(trial: &Trial<Case>, launch: &Launch) -> Result<Figures> {
    let case = &trial.case;
    let folder = tempfile::tempdir_in(&trial.file).context("no folder for the logs")?;
    let secrets = Secrets::write(folder.path())?;
    let places = Places::of(case.workers);
    let setting = |number: usize| Setting {
        launch,
        variant: trial.peer,
        log: folder.path().join(format!("log-{number}")),
        sync: case.sync,
        workers: case.workers,
        cores: &places.server,
        in_flight: case.in_flight,
        secrets: &secrets,
    };
    let (first, second) = (Server::start(&setting(0), any_port())?, Server::start(&setting(1), any_port())?);
    let addrs: [_; SERVERS] = [first.address(), second.address()];
    let load = Load {
        addrs: &addrs,
        in_flight: case.in_flight,
        connections: case.connections,
        secs: load_secs(trial.secs),
        secrets: case.verified.then_some(&secrets),
    };
    let mut client = Client::start(launch, &places.load, &load)?;
    let begin = Instant::now();

    sleep_until(begin, trial.secs);
    client.still_running()?;
    let killed_after_s = begin.elapsed().as_secs_f64();
    let records_when_killed = first.kill()?;
    sleep_until(begin, 2.0 * trial.secs);
    let first =
        Server::start(&setting(0), addrs[0]).context("the server that was killed could not be started again")?;
    let back_after_s = begin.elapsed().as_secs_f64();

    let report = client.finish()?;
    let logs = Logs { records_when_killed, killed: first.stop()?, other: second.stop()? };
    logs.check(&report)?;
    let end_s = load.secs;
    Ok(Figures {
        before_per_s: report.rate_between(0.0, killed_after_s),
        down_per_s: report.rate_between(killed_after_s, back_after_s),
        after_per_s: report.rate_between(back_after_s + LOOK_HOME_SECS, end_s),
        p99_ms: report.latency_us.p99 / 1e3,
        max_ms: report.latency_us.max / 1e3,
        signed: report.signed,
        refused: report.refused,
        failed: report.failed,
        lost: report.lost,
        connection_errors: report.connection_errors,
        records: logs.killed + logs.other,
        records_when_killed,
        records_of_killed: logs.killed,
        killed_after_s,
        back_after_s,
        signed_each_s: report.signed_each_s,
        secs: end_s,
    })
}

/// The numbers of records.
struct Logs {
    /// In the log of the killed server, at that time.
    records_when_killed: u64,
    /// In the same log at the end.
    killed: u64,
    /// In the other server's log at the end.
    other: u64,
}

impl Logs {
    fn check(&self, report: &Report) -> Result<()> {
        let mut account = Account::default();
        account.add(report);
        account.check(self.killed + self.other)?;
        ensure!(report.connection_errors > 0, "a server was killed, and the client had no error of a connection");
        let (before, after) = (self.records_when_killed, self.killed);
        ensure!(before <= after, "the log had {before} records when its server was killed, and has {after} now");
        ensure!(before < after, "the server that came back was sent nothing: pass more --secs");
        Ok(())
    }
}

/// The approximate time of a trial, in seconds.
pub(super) fn length_secs(secs: f64) -> f64 {
    load_secs(secs) + START_SECS
}

/// How long the client runs: equally long with two servers, with one, and with two again, which
/// includes the time until connections return.
fn load_secs(secs: f64) -> f64 {
    3.0 * secs + 1.5 * LOOK_HOME_SECS
}

fn sleep_until(begin: Instant, secs: f64) {
    std::thread::sleep((begin + Duration::from_secs_f64(secs)).saturating_duration_since(Instant::now()));
}

/// How often a redirected connection tries its own server again (docs/sign.md).
const LOOK_HOME_SECS: f64 = 1.0;

/// For starting and ending processes.
const START_SECS: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(logs: &Logs, connection_errors: u64) -> String {
        let mut report: Report = serde_json::from_str(super::super::client::tests::LINE).expect("it is one");
        report.connection_errors = connection_errors;
        logs.check(&report).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_trial_is_good_where_the_kill_was_noticed_and_made_good() {
        // The report has 100 signed, 4 lost and 2 failed.
        assert_eq!(error(&Logs { records_when_killed: 30, killed: 60, other: 43 }, 1), "");
        assert!(error(&Logs { records_when_killed: 30, killed: 56, other: 43 }, 1).contains("100 tasks were signed"));
        assert!(error(&Logs { records_when_killed: 30, killed: 64, other: 43 }, 1).contains("107 records"));
        assert!(
            error(&Logs { records_when_killed: 30, killed: 60, other: 43 }, 0).contains("no error of a connection")
        );
        assert!(error(&Logs { records_when_killed: 60, killed: 60, other: 43 }, 1).contains("pass more --secs"));
        assert!(error(&Logs { records_when_killed: 61, killed: 60, other: 43 }, 1).contains("61 records when"));
    }
}
