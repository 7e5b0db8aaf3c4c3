//! One run of a program that is to be predicted, in a separate process.

use super::clients::{self, Clients};
use crate::colors::case::{Case, Workload};
use crate::colors::steady::Steady;
use crate::insight::trial::{PAUSE, WARM_UP, WINDOW};
use crate::machine::end_with_parent;
use crate::stats::median;
use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum;
use dapple_insight::Insight;
use dapple_sched::Handle;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A program of which another number of workers is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Predicted {
    /// 16 colors, each callback posts one of its own color
    W1,
    /// One color posts to a thousand others
    W2,
    /// 16 colors post to one
    W3,
    /// Two colors post to each other
    W4,
    /// Callbacks that hold two of a thousand accounts
    W5,
    /// One state that all tasks use for most of their time
    Bank,
    /// Pages over HTTP, with a state that all handlers use
    Serve,
    /// A server that asks another one
    Proxy,
    /// Three stages one after the other: a digest, a log, another digest
    Sign,
    /// Rooms with visitors over TCP
    Chat,
    /// Gets from a table on disk, and a few puts
    Store,
}

/// Arguments of the hidden `insight-predict` command.
#[derive(clap::Args)]
pub(crate) struct PredictArgs {
    #[arg(long)]
    pub(super) predicted: Predicted,
    #[arg(long)]
    pub(super) workers: usize,
    /// The number of workers to predict.
    #[arg(long)]
    pub(super) other: usize,
    #[arg(long)]
    pub(super) run: usize,
    #[arg(long)]
    pub(super) secs: f64,
    #[arg(long)]
    pub(super) spin_rounds: u64,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Foreseen {
    pub(super) predicted: Predicted,
    pub(super) workers: usize,
    /// The number of workers that it predicts.
    pub(super) other: usize,
    /// Number of the repetition, from 0.
    pub(super) run: usize,
    /// Callbacks or answers per second while nothing records: the median of the windows.
    pub(super) rate_per_s: f64,
    /// The predicted rate on the other number of workers, by that on this one: the median of the recordings.
    pub(super) speedup: f64,
    /// Whether the program's own check passed, and the recordings were complete.
    pub(super) checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl Foreseen {
    /// A run that yielded no figures.
    pub(super) fn failed(args: &PredictArgs, problem: String) -> Foreseen {
        let PredictArgs { predicted, workers, other, run, .. } = *args;
        let problem = Some(problem);
        Foreseen { predicted, workers, other, run, rate_per_s: 0.0, speedup: 0.0, checked: false, problem }
    }
}

/// Runs one trial and prints its line.
pub(crate) fn run_predict(args: &PredictArgs) -> Result<()> {
    end_with_parent()?;
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

enum Running {
    Colors(Steady),
    Clients(Clients),
}

impl Running {
    fn start(args: &PredictArgs) -> Result<Running> {
        let colors = |workload| {
            let case = Case::new(workload, None, None, WORK_US * 1_000);
            Steady::of(case, args.workers, args.spin_rounds * WORK_US).map(Running::Colors)
        };
        let start = match args.predicted {
            Predicted::W1 => return colors(Workload::W1),
            Predicted::W2 => return colors(Workload::W2),
            Predicted::W3 => return colors(Workload::W3),
            Predicted::W4 => return colors(Workload::W4),
            Predicted::W5 => return colors(Workload::W5),
            Predicted::Bank => clients::bank,
            Predicted::Serve => clients::serve,
            Predicted::Proxy => clients::proxy,
            Predicted::Sign => clients::sign,
            Predicted::Chat => clients::chat,
            Predicted::Store => clients::store,
        };
        start(args.workers, args.spin_rounds).map(Running::Clients)
    }

    fn handle(&self) -> &Handle {
        match self {
            Running::Colors(steady) => steady.handle(),
            Running::Clients(clients) => clients.runtime().handle(),
        }
    }

    fn ops(&self) -> u64 {
        match self {
            Running::Colors(steady) => steady.ops(),
            Running::Clients(clients) => clients.ops(),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Running::Colors(steady) => steady.end().map_err(|problem| anyhow!(problem)),
            Running::Clients(clients) => clients.end(),
        }
    }
}

pub(super) fn measure(args: &PredictArgs) -> Result<Foreseen> {
    let running = Running::start(args)?;
    let insight = Insight::new(running.handle())?;
    std::thread::sleep(WARM_UP);
    let (mut rates, mut speedups, mut lost) = (Vec::new(), Vec::new(), 0);
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < args.secs {
        let (ops, from) = (running.ops(), Instant::now());
        std::thread::sleep(WINDOW);
        rates.push((running.ops() - ops) as f64 / from.elapsed().as_secs_f64());
        let session = insight.begin()?;
        std::thread::sleep(WINDOW);
        let recording = session.end();
        lost += recording.lost();
        speedups.push(recording.predict(args.other, &[]).speedup);
        std::thread::sleep(PAUSE);
    }
    let rate_per_s = median(&rates);
    let checked = running.end().and_then(|()| {
        ensure!(lost == 0, "{lost} events found no room");
        ensure!(rate_per_s > 0.0, "nothing ran while it was measured: is the machine busy? pass more --secs");
        Ok(())
    });
    let problem = checked.err().map(|error| format!("{error:#}"));
    let speedup = median(&speedups);
    Ok(Foreseen { rate_per_s, speedup, checked: problem.is_none(), problem, ..Foreseen::failed(args, String::new()) })
}

/// The work in each callback of W1 to W5.
pub(super) const WORK_US: u64 = 10;
