//! `bench threads`: what threads and tasks share, beside how others share it.

mod bank;
mod peers;

use crate::machine::{end_with_parent, own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median, paired, ratio_text};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::Result;
use bank::measure;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Arguments of `bench threads`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Which experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Experiment>,
    /// Who runs (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// Accounts
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "100,2", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    accounts: Vec<u32>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Threads beside the workers that sum up all accounts again and again
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "0,1", value_parser = clap::value_parser!(u16).range(0..=64))]
    readers: Vec<u16>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, after a warm-up of a quarter of that
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Experiment {
    /// Transfers between two accounts chosen at random, as transactions
    Stm,
}

/// Who runs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Peer {
    /// `dapple::stm`, in tasks of Dapple, one per worker
    Dapple,
    /// `dapple::stm`, in plain threads
    DappleThreads,
    /// `dapple::when` over the two accounts' colors, in tasks of Dapple, one per worker
    DappleWhen,
    /// The crate `fast-stm`, in plain threads
    FastStm,
    /// The crate `async-stm`, in tasks of tokio, one per worker
    AsyncStm,
    /// `std::sync::Mutex`, taken in order, in plain threads
    Mutex,
}

/// Arguments of the hidden `threads-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    peer: Peer,
    #[arg(long)]
    accounts: usize,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    readers: usize,
    #[arg(long)]
    run: usize,
    #[arg(long)]
    secs: f64,
}

/// What one run measured: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// What was run.
    experiment: Experiment,
    /// Who ran it.
    peer: Peer,
    /// Accounts to choose from.
    accounts: usize,
    /// Threads that make transfers.
    workers: usize,
    /// Threads that sum up all accounts.
    readers: usize,
    /// Number of the repetition, from 0.
    run: usize,
    /// Seconds measured, after the warm-up.
    secs: f64,
    /// Transfers per second of wall-clock time.
    rate_per_s: f64,
    /// Sums of all accounts per second of wall-clock time.
    sums_per_s: f64,
    /// User and system time of the whole process per transfer.
    cpu_ns_per_op: f64,
    /// Whether no unit came or went, and no sum was wrong.
    checked: bool,
    /// What the check found.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Runs what the arguments ask for and reports it; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let about = args.output.begin();
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run),
        |trial| format!("{}/{}w", name(trial.peer), trial.workers),
        |trial| apart(trial).unwrap_or_else(|error| failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args));
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} accounts={} workers={}: {problem}", name(run.peer), run.accounts, run.workers))
    })
}

/// The trials of one repetition; each repetition starts with another peer, so that no place in the row is favored.
fn trials(args: &Args, run: usize) -> Vec<TrialArgs> {
    if !args.only.is_empty() && !args.only.contains(&Experiment::Stm) {
        return Vec::new();
    }
    let wanted = |peer: &&Peer| args.peer.is_empty() || args.peer.contains(peer);
    let mut peers: Vec<Peer> = Peer::value_variants().iter().filter(wanted).copied().collect();
    let first = run % peers.len();
    peers.rotate_left(first);
    let mut trials = Vec::new();
    for &accounts in &args.accounts {
        for &readers in &args.readers {
            for &workers in &args.workers {
                trials.extend(peers.iter().map(|&peer| TrialArgs {
                    peer,
                    accounts: accounts as usize,
                    workers: usize::from(workers),
                    readers: usize::from(readers),
                    run,
                    secs: args.secs,
                }));
            }
        }
    }
    trials
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("threads-trial")?;
    for (flag, value) in [
        ("--peer", name(args.peer)),
        ("--accounts", args.accounts.to_string()),
        ("--workers", args.workers.to_string()),
        ("--readers", args.readers.to_string()),
        ("--run", args.run.to_string()),
        ("--secs", args.secs.to_string()),
    ] {
        command.arg(flag).arg(value);
    }
    run_apart(command, Duration::from_secs_f64(args.secs * 2.0 + 30.0))
}

fn failed(args: &TrialArgs, problem: String) -> Measured {
    let TrialArgs { peer, accounts, workers, readers, run, .. } = *args;
    Measured {
        experiment: Experiment::Stm,
        peer,
        accounts,
        workers,
        readers,
        run,
        secs: 0.0,
        rate_per_s: 0.0,
        sums_per_s: 0.0,
        cpu_ns_per_op: 0.0,
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

fn report(all: &[Measured], args: &Args) -> Report {
    let mut tables = Vec::new();
    let cases: BTreeSet<_> = all.iter().map(|run| (std::cmp::Reverse(run.accounts), run.readers)).collect();
    for (accounts, readers) in cases {
        let mut table =
            Table::new(&["peer", "workers", "M transfers/s", "to 1 worker", "CPU ns", "k sums/s", "checked"]);
        for &peer in Peer::value_variants() {
            let of = |workers| -> Vec<&Measured> {
                all.iter()
                    .filter(|run| run.accounts == accounts.0 && run.readers == readers)
                    .filter(|run| run.peer == peer && run.workers == workers)
                    .collect()
            };
            for workers in args.workers.iter().map(|&workers| usize::from(workers)).collect::<BTreeSet<_>>() {
                let own = of(workers);
                if own.is_empty() {
                    continue;
                }
                let figure = |of: fn(&Measured) -> f64| median(&own.iter().map(|run| of(run)).collect::<Vec<_>>());
                table.row(vec![
                    name(peer),
                    workers.to_string(),
                    format!("{:.2}", figure(|run| run.rate_per_s) / 1e6),
                    ratio_text(paired(&own, &of(1), |run| run.run, |run| run.rate_per_s)),
                    format!("{:.0}", figure(|run| run.cpu_ns_per_op)),
                    format!("{:.0}", figure(|run| run.sums_per_s) / 1e3),
                    checked(own.iter().map(|run| run.checked)),
                ]);
            }
        }
        tables.push((format!("stm: {} accounts, {readers} threads that sum them up", accounts.0), table));
    }
    Report {
        runs: format!("{} of {} s each, the peers by turns", args.runs, args.secs),
        tables,
        legend: "Medians. CPU is user and system time of the whole process per transfer, readers included; each run\n\
                 checks that no unit came or went, and each sum that it is right.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_runs_and_passes_its_check() {
        for &peer in Peer::value_variants() {
            for readers in [0, 1] {
                let args = TrialArgs { peer, accounts: 5, workers: 2, readers, run: 0, secs: 0.3 };
                let measured = measure(&args).expect("it starts");
                assert!(measured.checked, "{measured:?}");
            }
        }
    }
}
