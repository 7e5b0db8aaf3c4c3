//! One run, in a separate process.

use super::hello::{CONNECTIONS, Hello};
use crate::colors::steady::Steady;
use crate::machine::end_with_parent;
use crate::stats::median;
use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum;
use dapple_insight::Insight;
use dapple_sched::Handle;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A program with recorded callbacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    /// W1 of `colors`, with 1 us of work in each callback
    W1,
    /// A tiny page over kept connections
    Hello,
}

/// Arguments of the hidden `insight-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    pub(super) program: Program,
    #[arg(long)]
    pub(super) workers: usize,
    /// Whether the runtime has a recorder.
    #[arg(long)]
    pub(super) recorder: bool,
    #[arg(long)]
    pub(super) run: usize,
    #[arg(long)]
    pub(super) secs: f64,
    #[arg(long)]
    pub(super) spin_rounds: u64,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) program: Program,
    pub(super) workers: usize,
    /// Whether the runtime had a recorder.
    pub(super) recorder: bool,
    /// Number of the repetition, from 0.
    pub(super) run: usize,
    /// Seconds measured in all windows.
    pub(super) secs: f64,
    /// Callbacks or answers per second before the first recording: the median of the windows.
    pub(super) quiet_per_s: f64,
    /// The same between recordings; 0 without a recorder.
    pub(super) between_per_s: f64,
    /// The same with recording; 0 without a recorder.
    pub(super) recorded_per_s: f64,
    /// The median ratio of neighboring windows, with recording to without; 0 without a recorder.
    pub(super) ratio: f64,
    /// Recorded callbacks for each callback or answer; 0 without a recorder.
    pub(super) callbacks_per_op: f64,
    /// Whether the program's own check passed, and the recordings were complete.
    pub(super) checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl Measured {
    /// A run that yielded no figures.
    pub(super) fn failed(args: &TrialArgs, problem: String) -> Measured {
        let TrialArgs { program, workers, recorder, run, .. } = *args;
        Measured {
            program,
            workers,
            recorder,
            run,
            secs: 0.0,
            quiet_per_s: 0.0,
            between_per_s: 0.0,
            recorded_per_s: 0.0,
            ratio: 0.0,
            callbacks_per_op: 0.0,
            checked: false,
            problem: Some(problem),
        }
    }

    /// Nanoseconds of a worker that recording adds to each callback.
    pub(super) fn cost_ns(&self) -> f64 {
        let added_s = (1.0 / self.ratio - 1.0) / self.between_per_s;
        added_s * self.workers as f64 * 1e9 / self.callbacks_per_op
    }
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

/// The program while it runs.
enum Running {
    W1(Steady),
    Hello(Hello),
}

impl Running {
    fn start(args: &TrialArgs) -> Result<Running> {
        match args.program {
            Program::W1 => Steady::start(args.workers, args.spin_rounds).map(Running::W1),
            Program::Hello => Hello::start(args.workers, args.secs).map(Running::Hello),
        }
    }

    fn handle(&self) -> &Handle {
        match self {
            Running::W1(steady) => steady.handle(),
            Running::Hello(hello) => hello.handle(),
        }
    }

    fn ops(&self) -> u64 {
        match self {
            Running::W1(steady) => steady.ops(),
            Running::Hello(hello) => hello.ops(),
        }
    }

    /// Operations that may have begun before a window, and are not in its recording.
    fn pending_max(&self) -> u64 {
        match self {
            Running::W1(steady) => steady.in_flight(),
            Running::Hello(_) => 4 * CONNECTIONS,
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Running::W1(steady) => steady.end().map_err(|problem| anyhow!(problem)),
            Running::Hello(hello) => hello.end(),
        }
    }

    /// Operations and seconds of one window.
    fn window(&self) -> (u64, f64) {
        let (ops, begin) = (self.ops(), Instant::now());
        std::thread::sleep(WINDOW);
        (self.ops() - ops, begin.elapsed().as_secs_f64())
    }
}

/// A recording of a window has room in the recorder's buffers.
pub(super) const WINDOW: Duration = Duration::from_millis(50);

/// The pause before each window: the measuring thread has been busy with the last recording.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// The figures of the windows of one kind.
#[derive(Default)]
struct Windows {
    rates: Vec<f64>,
    ops: u64,
    secs: f64,
}

impl Windows {
    fn add(&mut self, (ops, secs): (u64, f64)) -> f64 {
        let rate = ops as f64 / secs;
        (self.ops, self.secs) = (self.ops + ops, self.secs + secs);
        self.rates.push(rate);
        rate
    }
}

pub(super) fn measure(args: &TrialArgs) -> Result<Measured> {
    let running = Running::start(args)?;
    let insight = args.recorder.then(|| Insight::new(running.handle())).transpose()?;
    std::thread::sleep(WARM_UP);
    let (mut quiet, mut between, mut recorded) = (Windows::default(), Windows::default(), Windows::default());
    let (mut ratios, mut callbacks, mut lost) = (Vec::new(), 0, 0);
    while quiet.secs < args.secs / 2.0 {
        std::thread::sleep(PAUSE);
        quiet.add(running.window());
    }
    while let Some(insight) = insight.as_ref().filter(|_| between.secs + recorded.secs < args.secs / 2.0) {
        std::thread::sleep(PAUSE);
        let before = between.add(running.window());
        std::thread::sleep(PAUSE);
        let session = insight.begin()?;
        let during = recorded.add(running.window());
        let recording = session.end();
        callbacks += recording.callbacks();
        lost += recording.lost();
        ratios.push(during / before);
    }
    let pending = running.pending_max() * recorded.rates.len() as u64;
    let recorder = args.recorder;
    let complete = || complete(&recorded, callbacks as u64 + pending, lost);
    let checked =
        running.end().and_then(|()| measured(&quiet)).and_then(|()| if recorder { complete() } else { Ok(()) });
    let problem = checked.err().map(|error| format!("{error:#}"));
    let known = |figure: f64| if args.recorder { figure } else { 0.0 };
    Ok(Measured {
        secs: quiet.secs + between.secs + recorded.secs,
        quiet_per_s: median(&quiet.rates),
        between_per_s: known(median(&between.rates)),
        recorded_per_s: known(median(&recorded.rates)),
        ratio: known(median(&ratios)),
        callbacks_per_op: known(callbacks as f64 / recorded.ops.max(1) as f64),
        checked: problem.is_none(),
        problem,
        ..Measured::failed(args, String::new())
    })
}

fn measured(windows: &Windows) -> Result<()> {
    ensure!(windows.ops > 0, NOTHING_MEASURED);
    Ok(())
}

/// Checks that recordings have what ran in their windows, or was pending before.
fn complete(recorded: &Windows, callbacks: u64, lost: u64) -> Result<()> {
    ensure!(lost == 0, "{lost} events found no room");
    measured(recorded)?;
    ensure!(
        callbacks * 10 >= recorded.ops * 9,
        "{callbacks} callbacks were recorded or pending, and {} ran: the recordings are not complete",
        recorded.ops
    );
    Ok(())
}

/// The check's message for a run in which nothing ran in the windows.
const NOTHING_MEASURED: &str = "nothing ran while it was measured: is the machine busy? pass more --secs";

/// Threads and connections are up, and the scheduler has moved the colors.
pub(super) const WARM_UP: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_w1_are_complete() {
        for recorder in [false, true] {
            let run = |secs| {
                let args = TrialArgs { program: Program::W1, workers: 2, recorder, run: 0, secs, spin_rounds: 1_000 };
                measure(&args).expect("it starts")
            };
            // On a busy machine it may take longer until something runs.
            let starved = |measured: &Measured| measured.problem.as_deref() == Some(NOTHING_MEASURED);
            let measured = [0.2, 2.0, 20.0].into_iter().map(run).find(|measured| !starved(measured));
            assert!(measured.as_ref().is_some_and(|measured| measured.checked), "{measured:?}");
        }
    }
}
