//! `bench table2`: table 2 of libasync-smp (USENIX 2003), the gain from each part of the scheduler.
//!
//! Sixteen colors, in each a chain of callbacks that do a small computation and post the next one.
//! The colors start on all workers but the last, so that it has no work unless it steals.

use super::case::{Case, Workload};
use super::dapple::start_on;
use super::ledger::Run;
use super::spin::{Spin, calibrate};
use super::trial::{Outcome, SETTLE_LIMIT, watch};
use crate::machine::{end_with_parent, own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median, paired, ratio_text};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use dapple_sched::Runtime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Arguments of `bench table2`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The lines of the table (default: all that this build of the scheduler supports)
    #[arg(long, value_delimiter = ',', value_name = "LINE,...")]
    configuration: Vec<Configuration>,
    /// Numbers of workers, 2 or more; the paper has 4
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "2,4", value_parser = clap::value_parser!(u16).range(2..=1024))]
    workers: Vec<u16>,
    /// Nanoseconds of work in each callback
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    work_ns: u64,
    /// Repetitions; the configurations take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, after a warm-up of a quarter of that
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
}

/// The lines of the table. Each includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Configuration {
    /// One run queue that all workers share (the paper's base: 61,420 tasks/s)
    SharedQueue,
    /// A run queue per worker (240,618)
    WorkerQueues,
    /// And a list of free blocks per worker (293,997)
    FreeLists,
    /// And work stealing: the scheduler as it is (384,765)
    Stealing,
}

impl Configuration {
    /// Checks the share of the last worker. With a shared queue or stealing, any share is right.
    fn check_last_worker(self, callbacks: u64) -> Result<(), String> {
        match self {
            Configuration::WorkerQueues | Configuration::FreeLists if callbacks > 0 => {
                Err(format!("the last worker ran {callbacks} callbacks, and no other worker gave it any"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this build of the scheduler supports it.
    fn is_available(self) -> bool {
        cfg!(feature = "switches") || self == Configuration::Stealing
    }

    /// A runtime with this configuration. Once per process, because the setting is global.
    fn runtime(self, workers: usize) -> Result<Runtime> {
        ensure!(self.is_available(), "{} needs a bench that was built with `--features switches`", name(self));
        #[cfg(feature = "switches")]
        dapple_sched::Switches {
            shared_queue: self == Configuration::SharedQueue,
            free_lists: matches!(self, Configuration::FreeLists | Configuration::Stealing),
            stealing: self == Configuration::Stealing,
        }
        .set();
        Runtime::builder().workers(workers).build().context("cannot start Dapple's workers")
    }
}

/// Arguments of the hidden `table2-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    configuration: Configuration,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    work_ns: u64,
    #[arg(long)]
    spin_rounds: u64,
    #[arg(long)]
    run: usize,
    #[arg(long)]
    secs: f64,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// The configuration of the scheduler.
    configuration: Configuration,
    /// Threads that ran callbacks, one of which had none at the start.
    workers: usize,
    /// Nanoseconds of work in each callback.
    work_ns: u64,
    /// Number of the repetition, from 0.
    run: usize,
    /// Seconds measured, after the warm-up.
    secs: f64,
    /// Callbacks per second of wall-clock time.
    rate_per_s: f64,
    /// User and system time of the whole process per callback.
    cpu_ns_per_op: f64,
    /// The share of all callbacks that ran on the worker that had none at the start.
    last_worker_share: f64,
    /// Whether counts and order were right, and the last worker idle if no work could reach it.
    checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let configurations = configurations(args)?;
    let about = args.output.begin()?;
    let spin_rounds = (args.work_ns as f64 * calibrate()).round() as u64;
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, &configurations, spin_rounds, run),
        |trial| (String::new(), format!("{}/{}w", name(trial.configuration), trial.workers)),
        |trial| apart(trial).unwrap_or_else(|error| failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args))?;
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} workers={} run={}: {problem}", name(run.configuration), run.workers, run.run))
    })
}

/// The configurations to run: the requested ones, which must be available, or all available ones.
fn configurations(args: &Args) -> Result<Vec<Configuration>> {
    let (available, missing): (Vec<Configuration>, Vec<Configuration>) =
        Configuration::value_variants().iter().partition(|configuration| configuration.is_available());
    if let Some(missing) = args.configuration.iter().find(|asked| missing.contains(asked)) {
        bail!("{} cannot be run: this build of the scheduler cannot leave out parts of itself", name(*missing));
    }
    if !args.configuration.is_empty() {
        return Ok(available.into_iter().filter(|known| args.configuration.contains(known)).collect());
    }
    for missing in missing {
        eprintln!("{} is left out: this build of the scheduler cannot leave out parts of itself", name(missing));
    }
    Ok(available)
}

fn trials(args: &Args, configurations: &[Configuration], spin_rounds: u64, run: usize) -> Vec<TrialArgs> {
    let mut turns = configurations.to_vec();
    turns.rotate_left(run % configurations.len());
    let workers: BTreeSet<u16> = args.workers.iter().copied().collect();
    let trial = |configuration: Configuration, workers: u16| TrialArgs {
        configuration,
        workers: usize::from(workers),
        work_ns: args.work_ns,
        spin_rounds,
        run,
        secs: args.secs,
    };
    workers.iter().flat_map(|&workers| turns.iter().map(move |&turn| trial(turn, workers))).collect()
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("table2-trial")?;
    for (flag, value) in [
        ("--configuration", name(args.configuration)),
        ("--workers", args.workers.to_string()),
        ("--work-ns", args.work_ns.to_string()),
        ("--spin-rounds", args.spin_rounds.to_string()),
        ("--run", args.run.to_string()),
        ("--secs", args.secs.to_string()),
    ] {
        command.arg(flag).arg(value);
    }
    run_apart(command, Duration::from_secs_f64(args.secs * 2.0) + SETTLE_LIMIT + Duration::from_secs(20))
}

fn failed(args: &TrialArgs, problem: String) -> Measured {
    let TrialArgs { configuration, workers, work_ns, run, .. } = *args;
    Measured {
        configuration,
        workers,
        work_ns,
        run,
        secs: 0.0,
        rate_per_s: 0.0,
        cpu_ns_per_op: 0.0,
        last_worker_share: 0.0,
        checked: false,
        problem: Some(problem),
    }
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

fn measure(args: &TrialArgs) -> Result<Measured> {
    ensure!(args.workers >= 2, "the last worker has nothing, so there must be 2 or more");
    let case = Case::new(Workload::W1, Some(16), Some(1), args.work_ns);
    let run: &'static Run = Box::leak(Box::new(Run::new(case, Spin::of_rounds(args.spin_rounds))));
    let runtime = args.configuration.runtime(args.workers)?;
    let handle = runtime.handle().clone();
    let last = args.workers - 1;
    // The shared queue is that of worker 0.
    let shared = args.configuration == Configuration::SharedQueue;
    let started = start_on(runtime, run, &move |index| if shared { 0 } else { index % last })?;
    let Outcome { secs, rate_per_s, cpu_ns_per_op, problem, .. } = watch(run, started, args.secs, true);

    let callbacks: Vec<u64> = handle.stats().workers.iter().map(|worker| worker.callbacks).collect();
    let problem = problem.or_else(|| args.configuration.check_last_worker(callbacks[last]).err());
    Ok(Measured {
        secs,
        rate_per_s,
        cpu_ns_per_op,
        last_worker_share: callbacks[last] as f64 / callbacks.iter().sum::<u64>().max(1) as f64,
        checked: problem.is_none(),
        problem,
        ..failed(args, String::new())
    })
}

const LEGEND: &str = "\
Each line has all of the ones above it. K/s: thousand callbacks per second, medians. vs above: the rate against the line
above, median of paired runs. last: share of the callbacks that ran on the worker that had none to begin with. The paper,
on four 500 MHz processors: shared-queue 61, worker-queues 241, free-lists 294, stealing 385 K/s.";

fn report(all: &[Measured], args: &Args) -> Report {
    let counts: BTreeSet<usize> = all.iter().map(|run| run.workers).collect();
    let tables = counts.into_iter().map(|workers| {
        let runs: Vec<&Measured> = all.iter().filter(|run| run.workers == workers).collect();
        let work_ns = args.work_ns;
        (format!("16 colors on {} of {workers} workers, {work_ns} ns of work", workers - 1), table(&runs))
    });
    let runs = format!("{} of {} s each, the configurations by turns", args.runs, args.secs);
    Report { runs, tables: tables.collect(), legend: LEGEND }
}

fn table(runs: &[&Measured]) -> Table {
    let mut table = Table::new(&["configuration", "K/s", "min", "max", "vs above", "ns CPU", "last", "checked"]);
    let mut above: Vec<&Measured> = Vec::new();
    for &configuration in Configuration::value_variants() {
        let own: Vec<&Measured> = runs.iter().copied().filter(|run| run.configuration == configuration).collect();
        if own.is_empty() {
            continue;
        }
        let figures = |figure: fn(&Measured) -> f64| own.iter().map(|run| figure(run)).collect::<Vec<f64>>();
        let rates = figures(|run| run.rate_per_s / 1e3);
        let gain = paired(&own, &above, |run| run.run, |run| run.rate_per_s);
        table.row(vec![
            name(configuration),
            format!("{:.0}", median(&rates)),
            format!("{:.0}", rates.iter().copied().fold(f64::INFINITY, f64::min)),
            format!("{:.0}", rates.iter().copied().fold(0.0, f64::max)),
            ratio_text(gain),
            format!("{:.0}", median(&figures(|run| run.cpu_ns_per_op))),
            format!("{:.0}%", median(&figures(|run| run.last_worker_share)) * 100.0),
            checked(own.iter().map(|run| run.checked)),
        ]);
        above = own;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::trial::unless_starved;
    use super::*;

    fn trial(configuration: Configuration) -> TrialArgs {
        TrialArgs { configuration, workers: 3, work_ns: 0, spin_rounds: 0, run: 0, secs: 0.05 }
    }

    #[test]
    fn what_is_available_passes_its_check() {
        for &configuration in Configuration::value_variants() {
            if configuration.is_available() {
                let measured = unless_starved(|secs| {
                    let measured = measure(&TrialArgs { secs, ..trial(configuration) }).expect("it starts");
                    (measured.problem.clone(), measured)
                });
                assert!(measured.checked, "{measured:?}");
            } else {
                assert!(measure(&trial(configuration)).is_err());
            }
        }
    }

    #[test]
    fn a_last_worker_that_runs_without_stealing_fails() {
        assert!(Configuration::FreeLists.check_last_worker(1).is_err());
        assert!(Configuration::FreeLists.check_last_worker(0).is_ok());
        assert!(Configuration::SharedQueue.check_last_worker(1).is_ok());
        assert!(Configuration::Stealing.check_last_worker(0).is_ok());
    }

    #[test]
    fn lines_are_compared_with_the_one_above() {
        let line = |configuration, rate_per_s| Measured {
            rate_per_s,
            checked: true,
            problem: None,
            ..failed(&trial(configuration), String::new())
        };
        let runs = [line(Configuration::SharedQueue, 1e5), line(Configuration::Stealing, 3e5)];
        let text = table(&runs.iter().collect::<Vec<_>>()).render();
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("3.00x")), "{text}");
    }
}
