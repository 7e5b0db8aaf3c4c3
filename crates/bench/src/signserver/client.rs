//! `dapple sign-client` as a process, and its report.

use super::program::{Launch, Secrets};
use crate::machine::Guard;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

/// The parameters of a client.
pub(super) struct Load<'a> {
    pub(super) addrs: &'a [SocketAddr],
    pub(super) in_flight: usize,
    pub(super) connections: usize,
    pub(super) secs: f64,
    /// The secrets with which it checks all digests; `None` for no check.
    pub(super) secrets: Option<&'a Secrets>,
}

/// A running client.
pub(super) struct Client {
    guard: Guard,
    verifies: bool,
    limit: Duration,
}

/// The report of a client.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    /// Answered with digests that were right, as far as they were checked.
    pub(super) signed: u64,
    pub(super) throughput_per_s: f64,
    pub(super) latency_us: Latency,
    pub(super) refused: u64,
    /// Answered with an error; some of them may be in a log.
    pub(super) failed: u64,
    /// Sent and not answered: they may be in a log or not.
    pub(super) lost: u64,
    /// Answered with digests that were wrong.
    pub(super) wrong: u64,
    pub(super) connection_errors: u64,
    pub(super) last_error: Option<String>,
    pub(super) verified: bool,
    /// Answers in each second.
    pub(super) signed_each_s: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Latency {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Client {
    /// Starts it; it runs for the time in `load`.
    pub(super) fn start(launch: &Launch, cores: &[usize], load: &Load) -> Result<Client> {
        let mut command = launch.command(cores)?;
        command.arg("sign-client").args(["--json", "--quiet"]);
        for addr in load.addrs {
            command.arg("--addr").arg(addr.to_string());
        }
        command.arg("--in-flight").arg(load.in_flight.to_string());
        command.arg("--connections").arg(load.connections.to_string());
        command.arg("--secs").arg(load.secs.to_string());
        if let Some(secrets) = load.secrets {
            command.arg("--verify").args(secrets.args());
        }
        let guard = Guard::start("dapple sign-client", command.stdout(Stdio::piped()))?;
        let limit = Duration::from_secs_f64(load.secs) + LIMIT_BEYOND;
        Ok(Client { guard, verifies: load.secrets.is_some(), limit })
    }

    /// Fails if it has already ended.
    pub(super) fn still_running(&mut self) -> Result<()> {
        self.guard.still_running()
    }

    /// Waits for its end; an error if a digest was wrong or nothing was signed.
    pub(super) fn finish(self) -> Result<Report> {
        let (status, text) = self.guard.outcome(self.limit)?;
        let report = Report::read(&text).with_context(|| format!("dapple sign-client ended with {status}"))?;
        ensure!(report.verified == self.verifies, "dapple sign-client did not say whether it compared digests");
        report.check()?;
        ensure!(status.success(), "dapple sign-client failed: {status}");
        Ok(report)
    }
}

impl Report {
    fn read(text: &str) -> Result<Report> {
        let line = text.trim();
        ensure!(!line.is_empty(), "it printed no result; standard error says why");
        serde_json::from_str(line).with_context(|| format!("its result cannot be read: {line}"))
    }

    fn check(&self) -> Result<()> {
        let last = self.last_error.as_ref().map(|error| format!(" (its last error: {error})")).unwrap_or_default();
        ensure!(self.wrong == 0, "{} answers had wrong digests", self.wrong);
        if self.signed == 0 {
            bail!("nothing was signed{last}: pass more --secs");
        }
        Ok(())
    }

    /// Tasks signed per second between two times, in whole seconds of the client; `None` if there
    /// are none between.
    pub(super) fn rate_between(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let (from, to) = (from_s.ceil() as usize, to_s.floor() as usize);
        // The list ends with the last second in which a task was signed.
        let signed: u64 = (from..to).map(|second| self.signed_each_s.get(second).copied().unwrap_or(0)).sum();
        (from < to).then(|| signed as f64 / (to - from) as f64)
    }
}

/// The most time beyond the load's for a client, which waits for answers on a perhaps busy machine.
const LIMIT_BEYOND: Duration = Duration::from_secs(60);

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A line as the client prints it.
    pub(in crate::signserver) const LINE: &str = r#"{"in_flight":8,"connections":2,"secs":4.0,"task_bytes":5000,"verified":true,
        "signed":100,"throughput_per_s":25.0,"latency_us":{"mean":80.5,"p50":79,"p99":200,"max":300},"refused":3,"errors":7,
        "failed":2,"log_full":0,"lost":4,"wrong":0,"connection_errors":1,"last_error":"connecting: refused",
        "signed_each_s":[40,30,10]}"#;

    #[test]
    fn a_report_is_read() {
        let report = Report::read(LINE).expect("it is one");
        assert_eq!((report.signed, report.refused, report.failed, report.lost), (100, 3, 2, 4));
        assert_eq!((report.latency_us.p99, report.connection_errors, report.verified), (200.0, 1, true));
        assert!(report.check().is_ok());
        let read = |text: &str| Report::read(text).map_err(|error| format!("{error:#}")).map(|_| ());
        assert!(read("\n").is_err_and(|error| error.contains("standard error says why")));
        assert!(read(r#"{"signed":1}"#).is_err_and(|error| error.contains("cannot be read")));
    }

    #[test]
    fn wrong_digests_and_nothing_at_all_are_errors() {
        let check = |report: Report| report.check().map_err(|error| error.to_string());
        let report = || Report::read(LINE).expect("it is one");
        assert_eq!(check(Report { wrong: 2, ..report() }), Err("2 answers had wrong digests".to_owned()));
        let nothing = check(Report { signed: 0, ..report() }).expect_err("nothing was signed");
        assert!(nothing.contains("connecting: refused") && nothing.contains("pass more --secs"), "{nothing}");
    }

    #[test]
    fn rates_are_of_whole_seconds() {
        let report = Report::read(LINE).expect("it is one");
        assert_eq!(report.rate_between(0.0, 2.0), Some(35.0));
        assert_eq!(report.rate_between(0.2, 2.9), Some(30.0));
        // No task was signed in the fourth second.
        assert_eq!(report.rate_between(2.0, 4.0), Some(5.0));
        assert_eq!(report.rate_between(1.1, 1.9), None);
    }
}
