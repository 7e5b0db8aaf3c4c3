//! `bench idle`: the CPU time of a runtime without work.

use crate::machine::{end_with_parent, own_command, own_cpu, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median};
use crate::words::{check_secs, checked, name, verdict};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Arguments of `bench idle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The idle peers (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,8", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, after a second without work
    #[arg(long, default_value_t = 10.0)]
    secs: f64,
}

/// An idle peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Peer {
    /// The scheduler of Dapple, without I/O
    Dapple,
    /// Dapple with its driver of sockets and timers
    DappleIo,
    /// tokio on several threads, with its drivers of sockets and timers
    Tokio,
}

/// Arguments of the hidden `idle-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    peer: Peer,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    run: usize,
    #[arg(long)]
    secs: f64,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// The idle peer.
    peer: Peer,
    /// Threads without work.
    workers: usize,
    /// Number of the repetition, from 0.
    run: usize,
    /// Seconds measured.
    secs: f64,
    /// User and system time of the process over wall-clock time, in percent of one core.
    cpu_percent: f64,
    /// Whether the runtime still ran a callback afterwards.
    checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 3_600.0)?;
    let about = args.output.begin()?;
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run),
        |trial| (String::new(), format!("{}/{}w", name(trial.peer), trial.workers)),
        |trial| apart(trial).unwrap_or_else(|error| failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args))?;
    verdict(&all, |run| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} workers={} run={}: {problem}", name(run.peer), run.workers, run.run))
    })
}

fn trials(args: &Args, run: usize) -> Vec<TrialArgs> {
    let wanted = |peer: &&Peer| args.peer.is_empty() || args.peer.contains(peer);
    let mut peers: Vec<Peer> = Peer::value_variants().iter().filter(wanted).copied().collect();
    let first = run % peers.len();
    peers.rotate_left(first);
    let workers: BTreeSet<u16> = args.workers.iter().copied().collect();
    let trial = |peer, workers| TrialArgs { peer, workers: usize::from(workers), run, secs: args.secs };
    workers.iter().flat_map(|&workers| peers.iter().map(move |&peer| trial(peer, workers))).collect()
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("idle-trial")?;
    command.args(["--peer", &name(args.peer), "--workers", &args.workers.to_string()]);
    command.args(["--run", &args.run.to_string(), "--secs", &args.secs.to_string()]);
    run_apart(command, Duration::from_secs_f64(args.secs + 30.0))
}

fn failed(args: &TrialArgs, problem: String) -> Measured {
    let TrialArgs { peer, workers, run, .. } = *args;
    Measured { peer, workers, run, secs: 0.0, cpu_percent: 0.0, checked: false, problem: Some(problem) }
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

fn measure(args: &TrialArgs) -> Result<Measured> {
    let post: Post = match args.peer {
        Peer::Dapple => dapple(dapple_sched::Runtime::builder(), args.workers)?,
        Peer::DappleIo => dapple(dapple_io::runtime_builder(), args.workers)?,
        Peer::Tokio => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(args.workers).enable_all().build()?;
            Box::new(move |callback| drop(runtime.spawn(async move { callback() })))
        }
    };
    answers(&post).context("before")?;
    std::thread::sleep(SETTLE);
    let (cpu, begin) = (own_cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(args.secs));
    let (cpu, secs) = (own_cpu() - cpu, begin.elapsed().as_secs_f64());
    // A runtime that is idle because it has stopped does not count.
    let problem = answers(&post).context("after").err().map(|error| format!("{error:#}"));
    std::mem::forget(post);
    Ok(Measured {
        secs,
        cpu_percent: cpu.as_secs_f64() / secs * 100.0,
        checked: problem.is_none(),
        problem,
        ..failed(args, String::new())
    })
}

/// Runs a callback on the runtime, which the closure keeps alive.
type Post = Box<dyn Fn(Box<dyn FnOnce() + Send>)>;

/// The pause between the last callback and the measurement.
const SETTLE: Duration = Duration::from_secs(1);

fn dapple(builder: dapple_sched::Builder, workers: usize) -> Result<Post> {
    let runtime = builder.workers(workers).build().context("cannot start Dapple's workers")?;
    let color = runtime.handle().new_color();
    Ok(Box::new(move |callback| {
        let _alive = &runtime;
        color.post(callback);
    }))
}

fn answers(post: &Post) -> Result<()> {
    let (answer, answered) = channel();
    post(Box::new(move || answer.send(()).unwrap_or_default()));
    answered.recv_timeout(Duration::from_secs(10)).context("a callback did not run within 10 s")
}

fn report(all: &[Measured], args: &Args) -> Report {
    let mut table = Table::new(&["peer", "workers", "% of a core", "min", "max", "checked"]);
    for &peer in Peer::value_variants() {
        let counts: BTreeSet<usize> = all.iter().filter(|run| run.peer == peer).map(|run| run.workers).collect();
        for workers in counts {
            let own: Vec<&Measured> = all.iter().filter(|run| run.peer == peer && run.workers == workers).collect();
            let cpu: Vec<f64> = own.iter().map(|run| run.cpu_percent).collect();
            table.row(vec![
                name(peer),
                workers.to_string(),
                format!("{:.3}", median(&cpu)),
                format!("{:.3}", cpu.iter().copied().fold(f64::INFINITY, f64::min)),
                format!("{:.3}", cpu.iter().copied().fold(0.0, f64::max)),
                checked(own.iter().map(|run| run.checked)),
            ]);
        }
    }
    Report {
        runs: format!("{} of {} s each, the peers by turns", args.runs, args.secs),
        tables: vec![("CPU time of a runtime that has nothing to do".to_owned(), table)],
        legend: "User and system time of the process; medians.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_rests_and_still_answers() {
        for &peer in Peer::value_variants() {
            let measured = measure(&TrialArgs { peer, workers: 2, run: 0, secs: 0.05 }).expect("it starts");
            assert!(measured.checked, "{measured:?}");
        }
    }
}
