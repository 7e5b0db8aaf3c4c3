//! Work from outside while every worker is full of threads that yield: the time until it first
//! runs.

mod peers;

use crate::experiment::{Column, Experiment, Peer, Plot, Trial, workers_text};
use crate::go;
use crate::stats::median;
use crate::words::name;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The options of `bench threads --only fairness`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of fairness")]
pub(super) struct Flags {
    /// Threads that only yield
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1000,1000000", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    yielding: Vec<u32>,
    /// The sources of work (default: all)
    #[arg(long, value_delimiter = ',', value_name = "FROM,...")]
    source: Vec<Source>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        let wanted = |source: &&Source| self.source.is_empty() || self.source.contains(source);
        for &source in Source::value_variants().iter().filter(wanted) {
            for &yielding in &self.yielding {
                cases.extend(workers.iter().map(|&workers| Case { source, yielding: yielding as usize, workers }));
            }
        }
        cases
    }
}

/// A source of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// A kernel thread outside the workers starts a thread
    Spawn,
    /// A thread gets the bytes that it waits for
    Io,
    /// A thread wakes from sleep
    Timer,
}

pub(super) struct Fairness;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    source: Source,
    /// Threads that only yield.
    yielding: usize,
    /// Kernel threads that run them.
    workers: usize,
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The median time until the work first ran.
    first_run_ms: f64,
    /// The longest.
    first_run_ms_max: f64,
    /// The number of probes.
    probes: u64,
    /// Probes without a run within five seconds, which then count as that.
    starved: u64,
}

impl Experiment for Fairness {
    const NAME: &'static str = "fairness";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::Tokio, Peer::Smol, Peer::Go];
    const LEGEND: &'static str = "\
Medians of the runs. first run: from when the work was there until it ran. starved: how often that took more than 5 s; such a
run ends with it. Each run checks that the yielding threads yield meanwhile. Go has no outside to spawn from;
there, what comes is the time at which a child process wrote it.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        match trial.peer {
            Peer::Go => go::measure(trial, trial.case.workers, Fairness::limit(trial)),
            _ => measure(trial),
        }
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(60.0 + trial.secs * 2.0 + trial.case.yielding as f64 * 15e-6)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        (peer == Peer::Go && case.source == Source::Spawn)
            .then(|| "every goroutine is started by another, so there is no outside".to_owned())
    }

    fn title(case: &Case) -> String {
        format!("fairness: {} from outside while {} threads yield", name(case.source), case.yielding)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("workers", case.workers.to_string())]
    }

    fn one_worker(_: &Case) -> Option<Case> {
        None
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "first run ms", figure: |of| of.first_run_ms, decimals: 3 },
            Column { head: "max ms", figure: |of| of.first_run_ms_max, decimals: 3 },
            Column { head: "probes", figure: |of| of.probes as f64, decimals: 0 },
            Column { head: "starved", figure: |of| of.starved as f64, decimals: 0 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![Plot {
            stem: "first-run",
            y_title: "ms until it first runs",
            y_log: true,
            figure: |of| of.first_run_ms,
            x_title: "threads that yield",
            x: |case| case.yielding,
            part: |case| format!("{} {}", name(case.source), workers_text(case.workers)),
        }]
    }
}

/// Yields of all yielding threads; each counts a few at a time.
static YIELDS: AtomicU64 = AtomicU64::new(0);

/// Creates work, which sends the time until it ran through the channel.
type Probe = Box<dyn FnMut() -> Result<()>>;

fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let Case { source, yielding, workers } = trial.case;
    let (mut probe, answers) = peers::start(trial.peer, source, yielding, workers)?;
    // Most of them have run at least once by now.
    std::thread::sleep(Duration::from_secs_f64(0.2 + yielding as f64 * 1e-6));
    let before = YIELDS.load(Relaxed);
    let (mut took, mut starved) = (Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs_f64(trial.secs);
    while starved == 0 && (took.is_empty() || Instant::now() < end) {
        probe()?;
        match answer(&answers)? {
            Some(time) => took.push(time.as_secs_f64() * 1e3),
            None => {
                took.push(GIVE_UP.as_secs_f64() * 1e3);
                starved += 1;
            }
        }
        std::thread::sleep(BETWEEN);
    }
    ensure!(YIELDS.load(Relaxed) > before, "the threads that should yield did not");
    Ok(Figures {
        first_run_ms: median(&took),
        first_run_ms_max: took.iter().copied().fold(0.0, f64::max),
        probes: took.len() as u64,
        starved,
    })
}

fn answer(answers: &Receiver<Duration>) -> Result<Option<Duration>> {
    match answers.recv_timeout(GIVE_UP) {
        Ok(took) => Ok(Some(took)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(gone) => Err(gone).context("what should have run was dropped"),
    }
}

/// The longest wait for work.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The pause between two probes.
const BETWEEN: Duration = Duration::from_millis(5);
