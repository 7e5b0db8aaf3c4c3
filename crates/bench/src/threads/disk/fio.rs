//! `fio` for comparison, if it is installed: the speed of the device.

use super::{Case, Figures};
use crate::experiment::Trial;
use crate::machine::{Guard, bound_to};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

pub(super) fn obstacle(case: &Case) -> Option<String> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let look = || Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    if !*INSTALLED.get_or_init(look) {
        return Some("it is not installed (apt-get install fio)".to_owned());
    }
    (case.threads > DEPTH_MAX).then(|| format!("it is not run with more than {DEPTH_MAX} reads in flight"))
}

pub(super) fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let Case { threads, workers } = trial.case;
    let jobs = workers.min(threads);
    let mut command = bound_to(Path::new("fio"), &[])?;
    command.args(["--name=bench", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--norandommap"]);
    command.args(["--readonly", "--time_based", "--group_reporting", "--output-format=json"]);
    command.arg(format!("--filename={}", trial.file.display()));
    command.arg(format!("--iodepth={}", threads / jobs)).arg(format!("--numjobs={jobs}"));
    command.arg(format!("--runtime={}ms", (trial.secs * 1e3).ceil()));
    let limit = Duration::from_secs_f64(30.0 + trial.secs * 2.0);
    let text = Guard::start("fio", command.stdout(Stdio::piped()))?.output(limit)?;
    // It may print warnings before its JSON.
    let begin = text.find('{').context("fio printed no JSON")?;
    figures(&text[begin..])
}

/// Of all jobs together.
fn figures(text: &str) -> Result<Figures> {
    let report: Output = serde_json::from_str(text).context("fio's JSON has changed")?;
    let job = report.jobs.into_iter().next().context("fio ran no job")?;
    ensure!(job.error == 0 && job.read.total_ios > 0, "fio failed: error {}", job.error);
    // Its percentages are of the time of all jobs together.
    let cpu_ms = (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime;
    Ok(Figures {
        mb_per_s: job.read.bw_bytes / 1e6,
        cpu_us_per_read: cpu_ms * 1e3 / job.read.total_ios as f64,
        p99_us: None,
        reads: job.read.total_ios,
        switches: None,
        secs: job.read.runtime / 1e3,
    })
}

/// The used parts of fio's report.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    read: Read,
    usr_cpu: f64,
    sys_cpu: f64,
    /// Milliseconds, of all jobs together.
    job_runtime: f64,
}

#[derive(Deserialize)]
struct Read {
    bw_bytes: f64,
    total_ios: u64,
    /// Milliseconds.
    runtime: f64,
}

/// More than a ring of fio takes.
const DEPTH_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let job = r#"{"error": 0, "job_runtime": 2000, "usr_cpu": 1.0, "sys_cpu": 4.0,
            "read": {"bw_bytes": 4096000, "total_ios": 1000, "runtime": 1000}}"#;
        let figures = figures(&format!(r#"{{"jobs": [{job}]}}"#)).expect("it is whole");
        assert_eq!((figures.mb_per_s, figures.reads, figures.secs), (4.096, 1_000, 1.0));
        assert!((figures.cpu_us_per_read - 100.0).abs() < 1e-9, "{figures:?}");
    }
}
