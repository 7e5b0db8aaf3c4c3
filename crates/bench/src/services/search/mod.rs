//! Harvest and yield of `services/search` over time, while its partitions are killed and come back
//! (section 2.2.1 of Gribble's dissertation).
//!
//! A client asks a new question at fixed times, whatever became of the ones before. The answers are checked: an answer
//! with a harvest of `h` parts of `n` must have found exactly the documents of `h` partitions.

mod cluster;
mod questions;

use crate::chart::{Curve, Curves, Panel, Point, Spread};
use crate::machine::About;
use crate::output::Report;
use crate::stats::{Table, median};
use crate::words::{checked, verdict};
use anyhow::{Context, Result};
use cluster::Cluster;
use questions::{Asked, Questions};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments for `search`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Partitions of `search`, each a process
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    parts: u32,
    /// Questions to `search` a second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// The time limit of a question, milliseconds
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit_ms: u64,
    /// Draw harvest and yield of the last run of `search` over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One event of a run, and the state from there on.
struct Step {
    name: &'static str,
    act: fn(&mut Cluster) -> Result<()>,
    /// The partitions that do not run from then on.
    missing: u32,
}

/// The events of a run.
const STEPS: [Step; 6] = [
    Step { name: "all are there", act: |_| Ok(()), missing: 0 },
    Step { name: "one is killed", act: |cluster| cluster.kill(0), missing: 1 },
    Step { name: "a second is killed", act: |cluster| cluster.kill(1), missing: 2 },
    Step { name: "the first is back", act: |cluster| cluster.restart(0), missing: 1 },
    Step { name: "both are back", act: |cluster| cluster.restart(1), missing: 0 },
    Step { name: "one is frozen", act: |cluster| cluster.freeze(0), missing: 1 },
];

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    parts: u32,
    rate: u32,
    limit_ms: u64,
    /// Number of the repetition, from 0.
    run: usize,
    steps: Vec<Measurement>,
    /// By window of [`WINDOW_S`]: yield and mean harvest.
    windows: Vec<(f64, f64)>,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The figures between two events.
#[derive(Clone, Debug, Serialize)]
struct Measurement {
    step: &'static str,
    asked: usize,
    /// The fraction of the questions with an answer.
    answered: f64,
    /// The mean harvest of the answers, and the share of the partitions that ran.
    harvest: f64,
    running: f64,
    /// Until the harvest was that of the partitions that ran, for the rest of the step; seconds.
    settled_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(super) fn run(all_args: &super::Args, about: &About) -> Result<()> {
    let (args, secs) = (&all_args.search, all_args.secs);
    let all = all_args.output.repeat(
        all_args.runs,
        |run| vec![run],
        |_| (String::new(), format!("{} partitions", args.parts)),
        |run| measure(args, secs, *run),
    )?;
    if let Some((file, last)) = args.plot.as_ref().zip(all.last()) {
        let svg = drawing(last, secs, about).svg()?;
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    all_args.output.end(about, &report(&all, all_args))?;
    verdict(&all, |run| Some(format!("run={}: {}", run.run, run.problem.as_ref()?)))
}

fn measure(args: &Args, secs: f64, run: usize) -> Measured {
    let measured = |steps, windows, problem: Option<String>| {
        let Args { parts, rate, limit_ms, .. } = *args;
        Measured { parts, rate, limit_ms, run, steps, windows, checked: problem.is_none(), problem }
    };
    match events(args, secs) {
        Ok((asked, begins)) => {
            let problem = asked.iter().find_map(|asked| asked.problem.clone());
            measured(steps(args, &asked, &begins), windows(&asked), problem)
        }
        Err(error) => measured(Vec::new(), Vec::new(), Some(format!("{error:#}"))),
    }
}

/// Asks while the events happen. Returns all questions, and the times of the events.
fn events(args: &Args, secs: f64) -> Result<(Vec<Asked>, Vec<f64>)> {
    let mut cluster = Cluster::start(args.parts, Duration::from_millis(args.limit_ms))?;
    let begin = Instant::now();
    let questions = Questions::start(cluster.front(), begin, args.parts, args.rate);
    let mut begins = Vec::new();
    for step in &STEPS {
        begins.push(begin.elapsed().as_secs_f64());
        (step.act)(&mut cluster).with_context(|| step.name)?;
        let next = begin + Duration::from_secs_f64(secs * begins.len() as f64);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let asked = questions.end();
    Ok((asked, begins))
}

fn steps(args: &Args, asked: &[Asked], begins: &[f64]) -> Vec<Measurement> {
    let ends = begins.iter().skip(1).copied().chain([f64::INFINITY]);
    let figures = |(step, (begin, end)): (&Step, (&f64, f64))| {
        let own: Vec<&Asked> = asked.iter().filter(|asked| asked.at_s >= *begin && asked.at_s < end).collect();
        let harvests: Vec<f64> = own.iter().filter_map(|asked| asked.harvest).collect();
        let running = 1.0 - f64::from(step.missing) / f64::from(args.parts);
        // One that was on its way at the next event is of neither state.
        let mut ended = own.iter().rev().filter(|asked| asked.at_s + asked.took_s < end);
        let last_other = ended.find(|asked| asked.harvest != Some(running));
        let mut ms: Vec<f64> = own.iter().map(|asked| asked.took_s * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let percentile = |part: f64| ms.get((ms.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
        Measurement {
            step: step.name,
            asked: own.len(),
            answered: harvests.len() as f64 / own.len() as f64,
            harvest: harvests.iter().sum::<f64>() / harvests.len() as f64,
            running,
            settled_s: last_other.map_or(0.0, |asked| asked.at_s - begin),
            p50_ms: percentile(0.5),
            p99_ms: percentile(0.99),
        }
    };
    STEPS.iter().zip(begins.iter().zip(ends)).map(figures).collect()
}

/// Yield and mean harvest of each window.
fn windows(asked: &[Asked]) -> Vec<(f64, f64)> {
    let end = asked.last().map_or(0.0, |asked| asked.at_s);
    let count = (end / WINDOW_S) as usize;
    let figures = |number: usize| {
        let own: Vec<&Asked> = asked.iter().filter(|asked| (asked.at_s / WINDOW_S) as usize == number).collect();
        let harvests: Vec<f64> = own.iter().filter_map(|asked| asked.harvest).collect();
        let mean = if harvests.is_empty() { 0.0 } else { harvests.iter().sum::<f64>() / harvests.len() as f64 };
        (harvests.len() as f64 / own.len().max(1) as f64, mean)
    };
    (0..count).map(figures).collect()
}

const LEGEND: &str = "\
Medians of the runs. A front and its partitions, each a process of `services/search` on one machine, without a query cache; questions at
fixed times, whatever became of the ones before. yield: the fraction of the questions with an answer. harvest: the mean fraction of the
partitions in an answer; running: the fraction that ran. settled: the time from the event until all further answers of the step had the
harvest of the partitions that ran. ms: from the time at which a question was due. Checked: each answer with a harvest of h partitions has
found exactly the documents of h partitions. A killed partition is found out by its connection, and a frozen one by the time limit of each question.";

fn report(all: &[Measured], all_args: &super::Args) -> Report {
    let args = &all_args.search;
    let head = ["event", "asked", "yield", "harvest", "running", "settled s", "p50 ms", "p99 ms", "checked"];
    let mut table = Table::new(&head);
    for (number, step) in STEPS.iter().enumerate() {
        let own: Vec<&Measurement> = all.iter().filter_map(|run| run.steps.get(number)).collect();
        let middle = |figure: fn(&Measurement) -> f64| median(&own.iter().map(|of| figure(of)).collect::<Vec<f64>>());
        table.row(vec![
            step.name.to_owned(),
            own.iter().map(|of| of.asked).sum::<usize>().to_string(),
            format!("{:.4}", middle(|of| of.answered)),
            format!("{:.3}", middle(|of| of.harvest)),
            format!("{:.3}", middle(|of| of.running)),
            format!("{:.2}", middle(|of| of.settled_s)),
            format!("{:.1}", middle(|of| of.p50_ms)),
            format!("{:.1}", middle(|of| of.p99_ms)),
            checked(all.iter().map(|run| run.checked)),
        ]);
    }
    let title =
        format!("search: {} partitions, {} questions a second, limit {} ms", args.parts, args.rate, args.limit_ms);
    Report {
        runs: format!("{} of {} events, one each {} s", all_args.runs, STEPS.len(), all_args.secs),
        tables: vec![(title, table)],
        legend: LEGEND,
    }
}

/// Yield and harvest of one run over time.
fn drawing(run: &Measured, secs: f64, about: &About) -> Curves {
    let curve = |label: &str, style, figure: fn(&(f64, f64)) -> f64| Curve {
        label: label.to_owned(),
        style,
        points: (0_u32..)
            .zip(&run.windows)
            .filter_map(|(number, window)| {
                let x = Spread::of([f64::from(number) * WINDOW_S].into_iter())?;
                Some(Point { x, y: Spread::of([figure(window)].into_iter())?, label: String::new() })
            })
            .collect(),
    };
    Curves {
        title: format!("search: {} partitions; each {} s: {}", run.parts, secs, STEPS.map(|step| step.name).join(", ")),
        footer: format!("{}; commit {}", about.machine, about.commit),
        panels: vec![Panel {
            x_title: "seconds".to_owned(),
            y_title: "fraction".to_owned(),
            x_log: false,
            y_log: false,
            labeled: false,
            curves: vec![curve("yield", 0, |window| window.0), curve("harvest", 1, |window| window.1)],
        }],
    }
}

const WINDOW_S: f64 = 0.25;
