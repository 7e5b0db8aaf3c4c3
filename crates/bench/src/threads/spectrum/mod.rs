//! Threads, events and hybrids: small tasks over one connection that each wait, with more and more
//! of them at the same time. Gribble, Figures 9, 10, 12, 13, 15 and 16.

mod client;
mod floor;
mod outbox;
mod peers;
mod record;

pub(crate) use client::{ClientArgs, run_client};

use crate::experiment::{Column, Experiment, Peer, Plot, Seen, Trial, workers_text};
use crate::machine::{own_command, pin_to_cores};
use crate::usage::{Switches, Usage};
use anyhow::{Context, Result, bail, ensure};
use client::SeenByClient;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long each task waits.
const WAIT: Duration = Duration::from_millis(50);

/// The options of `bench threads --only spectrum`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of spectrum")]
pub(super) struct Flags {
    /// Tasks in flight
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "100,1000,10000,100000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    in_flight: Vec<u32>,
    /// The most tasks that the hybrid server runs at the same time; the others wait in its queue
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pool: u32,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &in_flight in &self.in_flight {
            let case = |&workers| Case { in_flight: in_flight as usize, pool: self.pool as usize, workers };
            cases.extend(workers.iter().map(case));
        }
        cases
    }
}

pub(super) struct Spectrum;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Tasks in flight.
    in_flight: usize,
    /// The most tasks that the hybrid server runs at the same time.
    pool: usize,
    /// Kernel threads that run the server; cores, if each task is a kernel thread itself.
    workers: usize,
}

/// The case of the rows of `bench regret`: enough tasks to keep one worker busy.
pub(super) fn regret_case(workers: usize) -> Case {
    Case { in_flight: 100_000, pool: 65_536, workers }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Replies per second of wall-clock time, at the client.
    tasks_per_s: f64,
    /// The median time from sending a task to reading its reply.
    p50_ms: f64,
    /// 99 of 100 took no longer.
    p99_ms: f64,
    /// User and system time of the server's process per task.
    cpu_us_per_task: f64,
    /// Context switches of the server's process per task.
    #[serde(flatten)]
    switches: Option<Switches>,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Spectrum {
    const NAME: &'static str = "spectrum";
    const PEERS: &'static [Peer] =
        &[Peer::Dapple, Peer::DappleEvents, Peer::DappleHybrid, Peer::Tokio, Peer::Pthreads, Peer::Epoll];
    const LEGEND: &'static str = "\
Medians. Each task of 150 bytes waits for 50 ms and is sent back, all over one connection; the client, a process of its own,
sends a new one for each reply. CPU is user and system time of the server. p50, p99: latency at the client, which waits for
nothing but replies. Each run checks every reply, that none came twice, and that none was lost.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback address")?;
        let mut client = start_client(trial, listener.local_addr()?.port())?;
        let output = client.stdout.take().context("the client has no output")?;
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        if trial.peer == Peer::Pthreads {
            pin_to_cores(trial.case.workers)?;
        }
        // Not dropped before the client has all replies; the time that a peer takes to stop is not
        // measured.
        let keep = peers::start(trial.peer, trial.case, socket)?;
        let figures = figures(BufReader::new(output));
        std::mem::forget(keep);
        let status = client.wait()?;
        ensure!(status.success() || figures.is_err(), "the client failed: {status}");
        figures
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.tasks_per_s, of.cpu_us_per_task);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: Some(of.p99_ms * 1e3), switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(120.0 + trial.secs * 2.0)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        match peer {
            Peer::Pthreads if case.in_flight > PTHREADS_MAX => Some(format!(
                "the kernel's limit on mappings (vm.max_map_count) stands against {} of its threads",
                case.in_flight
            )),
            Peer::Epoll if case.workers > 1 => Some("one connection is one loop".to_owned()),
            _ => None,
        }
    }

    fn title(case: &Case) -> String {
        format!("spectrum: tasks of 150 bytes that wait 50 ms; the hybrid runs {} at the same time", case.pool)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("in flight", case.in_flight.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "k tasks/s", figure: |of| of.tasks_per_s / 1e3, decimals: 1 },
            Column { head: "p50 ms", figure: |of| of.p50_ms, decimals: 1 },
            Column { head: "p99 ms", figure: |of| of.p99_ms, decimals: 1 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_task, decimals: 2 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: true,
            figure,
            x_title: "tasks in flight",
            x: |case: &Case| case.in_flight,
            part: |case: &Case| workers_text(case.workers),
        };
        vec![
            plot("rate", "thousand tasks per second", |of: &Figures| of.tasks_per_s / 1e3),
            plot("p50", "median latency, ms", |of: &Figures| of.p50_ms),
            plot("p99", "99th percentile of latency, ms", |of: &Figures| of.p99_ms),
        ]
    }
}

fn start_client(trial: &Trial<Case>, port: u16) -> Result<Child> {
    let mut command = own_command("spectrum-client")?;
    command.args(["--port", &port.to_string(), "--in-flight", &trial.case.in_flight.to_string()]);
    command.args(["--secs", &trial.secs.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start the client")
}

/// Reads this process's usage at the marks of the client, and returns the client's figures too.
fn figures(output: impl BufRead) -> Result<Figures> {
    let mut lines = output.lines();
    let mut line = || lines.next().context("the client ended early; see above")?.context("the client printed no text");
    let mut usage_at = |word: &str| -> Result<Usage> {
        match line()? {
            found if found == word => Ok(Usage::own()),
            other => bail!("the client said {other} instead of {word}"),
        }
    };
    let begin = usage_at("begin")?;
    let usage = usage_at("end")?.since(begin);
    let seen: SeenByClient = serde_json::from_str(&line()?).context("the client printed no result")?;
    ensure!(seen.tasks > 0, "no reply came while it was measured: pass more --secs");
    Ok(Figures {
        tasks_per_s: seen.tasks as f64 / seen.secs,
        p50_ms: seen.p50_ms,
        p99_ms: seen.p99_ms,
        cpu_us_per_task: usage.cpu.as_secs_f64() * 1e6 / seen.tasks as f64,
        switches: Some(usage.switches(seen.tasks)),
        secs: seen.secs,
    })
}

/// The kernel's default limit of 65,530 mappings allows four for each thread.
const PTHREADS_MAX: usize = 16_000;

/// The two halves of a connection, for blocking calls.
fn halves(socket: TcpStream) -> Result<(TcpStream, TcpStream)> {
    let other = socket.try_clone().context("no descriptor is left")?;
    Ok((socket, other))
}
