//! `bench insight`: the cost of recording callbacks, and what recordings predict.

mod hello;
mod predict;
mod trial;

pub(crate) use predict::{PredictArgs, run_predict};
pub(crate) use trial::{TrialArgs, run_trial};

use crate::colors::spin::calibrate;
use crate::colors::steady::WORK_NS;
use crate::machine::{About, own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median, paired};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::Result;
use clap::ValueEnum;
use predict::Predicted;
use std::collections::BTreeSet;
use std::time::Duration;
use trial::{Measured, Program};

/// Arguments of `bench insight`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The experiments
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...", default_value = "costs,predictions")]
    only: Vec<What>,
    /// The programs of which the costs are measured (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM,...")]
    program: Vec<Program>,
    /// The programs that are predicted (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM,...")]
    predicted: Vec<Predicted>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; programs without and with a recorder take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds per run, after a warm-up
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
}

/// The experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum What {
    /// Throughput without a recorder, with one that is off, and with one that records
    Costs,
    /// The throughput with one worker and with two, measured, and predicted by recordings with the other number
    Predictions,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let about = args.output.begin()?;
    let spin_rounds = (calibrate() * WORK_NS as f64) as u64;
    if args.only.contains(&What::Costs) {
        costs(args, &about, spin_rounds)?;
    }
    if args.only.contains(&What::Predictions) {
        let (report, verdict) = predict::run(&args.output, &args.predicted, (args.runs, args.secs), spin_rounds)?;
        args.output.end_of("insight: predictions", &about, &report)?;
        verdict?;
    }
    Ok(())
}

fn costs(args: &Args, about: &About, spin_rounds: u64) -> Result<()> {
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run, spin_rounds),
        |trial| {
            let recorder = if trial.recorder { "recorder" } else { "none" };
            (String::new(), format!("{}/{}w/{recorder}", name(trial.program), trial.workers))
        },
        |trial| apart(trial).unwrap_or_else(|error| Measured::failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(about, &report(&all, args))?;
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} workers={} run={}: {problem}", name(run.program), run.workers, run.run))
    })
}

fn trials(args: &Args, run: usize, spin_rounds: u64) -> Vec<TrialArgs> {
    let workers: BTreeSet<u16> = args.workers.iter().copied().collect();
    let programs = Program::value_variants().iter().copied();
    let mut trials = Vec::new();
    for program in programs.filter(|program| args.program.is_empty() || args.program.contains(program)) {
        for &workers in &workers {
            let order = if run.is_multiple_of(2) { [false, true] } else { [true, false] };
            let workers = usize::from(workers);
            trials.extend(order.map(|recorder| TrialArgs {
                program,
                workers,
                recorder,
                run,
                secs: args.secs,
                spin_rounds,
            }));
        }
    }
    trials
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("insight-trial")?;
    command.args(["--program", &name(args.program), "--workers", &args.workers.to_string()]);
    command.args(["--run", &args.run.to_string(), "--secs", &args.secs.to_string()]);
    command.args(["--spin-rounds", &args.spin_rounds.to_string()]);
    if args.recorder {
        command.arg("--recorder");
    }
    run_apart(command, Duration::from_secs_f64(args.secs * 4.0 + 60.0))
}

const LEGEND: &str = "\
Medians, in thousands a second. none: the runtime has no recorder. off: it has one that has not recorded yet. on: it records, in every
second window of 50 ms; between: in the windows before those. So on/between compares neighbors in one process, and off/none two
processes of one repetition. A recording gives light tasks a color each, which they keep, so `between` may differ from `off`. ns: what
recording adds to a callback, in time of a worker. Goals: off/none at least 0.99, on/between at least 0.97; MISSED marks a row below
one. w1: 16 colors, 64 in flight each, 1 us of work. hello: a page of 13 bytes over 64 kept connections through `dapple::serve`, the
load on a core of its own with one worker.";

/// The least ratios that are the goals: of off to none, and of on to between.
const GOALS: [f64; 2] = [0.99, 0.97];

fn report(all: &[Measured], args: &Args) -> Report {
    let head = [
        "program",
        "workers",
        "none",
        "off",
        "between",
        "on",
        "off/none",
        "on/between",
        "min",
        "max",
        "ns",
        "checked",
        "",
    ];
    let mut table = Table::new(&head);
    for &program in Program::value_variants() {
        let counts: BTreeSet<usize> = all.iter().filter(|run| run.program == program).map(|run| run.workers).collect();
        for workers in counts {
            let own: Vec<&Measured> =
                all.iter().filter(|run| run.program == program && run.workers == workers).collect();
            table.row(row(program, workers, &own));
        }
    }
    Report {
        runs: format!("{} of {} s each, without and with a recorder by turns", args.runs, args.secs),
        tables: vec![("What recording costs".to_owned(), table)],
        legend: LEGEND,
    }
}

fn row(program: Program, workers: usize, own: &[&Measured]) -> Vec<String> {
    let passed = |recorder: bool| -> Vec<&Measured> {
        own.iter().copied().filter(|run| run.recorder == recorder && run.checked).collect()
    };
    let (none, used) = (passed(false), passed(true));
    let middle = |runs: &[&Measured], figure: fn(&Measured) -> f64| {
        median(&runs.iter().map(|run| figure(run)).collect::<Vec<f64>>())
    };
    let off_none = paired(&used, &none, |run| run.run, |run| run.quiet_per_s).unwrap_or(f64::NAN);
    let ratios: Vec<f64> = used.iter().map(|run| run.ratio).collect();
    let on_between = median(&ratios);
    let missed = off_none < GOALS[0] || on_between < GOALS[1];
    let thousands = |rate: f64| format!("{:.1}", rate / 1e3);
    vec![
        name(program),
        workers.to_string(),
        thousands(middle(&none, |run| run.quiet_per_s)),
        thousands(middle(&used, |run| run.quiet_per_s)),
        thousands(middle(&used, |run| run.between_per_s)),
        thousands(middle(&used, |run| run.recorded_per_s)),
        format!("{off_none:.3}"),
        format!("{on_between:.3}"),
        format!("{:.3}", ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        format!("{:.3}", ratios.iter().copied().fold(0.0, f64::max)),
        format!("{:.0}", middle(&used, Measured::cost_ns)),
        checked(own.iter().map(|run| run.checked)),
        if missed { "MISSED".to_owned() } else { String::new() },
    ]
}
