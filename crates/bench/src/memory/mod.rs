//! `bench memory`: bytes per color, per handle and per waiting callback, compared with current
//! alternatives.

mod dapple;
mod kameo;
mod subject;
mod tokio_mpsc;
mod trial;

pub(crate) use trial::{TrialArgs, run_trial};

use crate::machine::{own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::{Table, median};
use crate::words::{checked, name, verdict};
use anyhow::Result;
use clap::ValueEnum;
use std::time::Duration;
use subject::{Peer, Thing};
use trial::Measured;

/// Arguments of `bench memory`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The peers (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// The things to count (default: all)
    #[arg(long, value_delimiter = ',', value_name = "THING,...")]
    thing: Vec<Thing>,
    /// Numbers of things; a million actors take some 5 GB
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "100,1000000", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: Vec<u32>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let about = args.output.begin()?;
    let all = args.output.repeat(
        args.runs,
        |run| trials(args, run),
        |trial| (String::new(), format!("{}/{}/{}", name(trial.peer), name(trial.thing), trial.count)),
        |trial| apart(trial).unwrap_or_else(|error| Measured::failed(trial, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report(&all, args.runs))?;
    let failure = |run: &Measured| {
        let problem = run.problem.as_ref()?;
        Some(format!("{} {} count={} run={}: {problem}", name(run.peer), name(run.thing), run.count, run.run))
    };
    verdict(&all, failure)
}

/// The trials of one repetition; each repetition starts with another peer.
fn trials(args: &Args, run: usize) -> Vec<TrialArgs> {
    let mut peers = wanted(&args.peer);
    let first = run % peers.len();
    peers.rotate_left(first);
    let mut trials = Vec::new();
    for thing in wanted(&args.thing) {
        for &count in &args.count {
            trials.extend(peers.iter().map(|&peer| TrialArgs { peer, thing, count: count as usize, run }));
        }
    }
    trials
}

/// The requested values, or all.
fn wanted<T: ValueEnum + PartialEq>(asked: &[T]) -> Vec<T> {
    T::value_variants().iter().filter(|value| asked.is_empty() || asked.contains(value)).cloned().collect()
}

fn apart(args: &TrialArgs) -> Result<Measured> {
    let mut command = own_command("memory-trial")?;
    command.args(["--peer", &name(args.peer), "--thing", &name(args.thing)]);
    command.args(["--count", &args.count.to_string(), "--run", &args.run.to_string()]);
    run_apart(command, Duration::from_secs(180))
}

const LEGEND: &str = "\
bytes: growth of the process's anonymous resident memory over the number of things, with what runtime and allocator keep
for later; medians. Memory comes in pages of 4 KiB, so the bytes of a hundred things are rounded to 41.
unused: a color that never ran, with its handle. idle: one that ran once. queued: a callback of 24 bytes that waits.";

fn report(all: &[Measured], runs: u32) -> Report {
    let mut tables = Vec::new();
    for &thing in Thing::value_variants() {
        let mut table = Table::new(&["peer", "count", "bytes", "min", "max", "checked"]);
        let mut any = false;
        for &peer in Peer::value_variants() {
            let own = all.iter().filter(|run| run.peer == peer && run.thing == thing);
            let mut counts: Vec<usize> = own.map(|run| run.count).collect();
            counts.sort_unstable();
            counts.dedup();
            for count in counts {
                any = true;
                table.row(row(all, peer, thing, count));
            }
        }
        if any {
            tables.push((thing.title().to_owned(), table));
        }
    }
    Report { runs: format!("{runs}, each in a process of its own, the peers by turns"), tables, legend: LEGEND }
}

fn row(all: &[Measured], peer: Peer, thing: Thing, count: usize) -> Vec<String> {
    let own: Vec<&Measured> =
        all.iter().filter(|run| (run.peer, run.thing, run.count) == (peer, thing, count)).collect();
    let bytes: Vec<f64> = own.iter().map(|run| run.bytes_each).collect();
    vec![
        name(peer),
        count.to_string(),
        format!("{:.0}", median(&bytes)),
        format!("{:.0}", bytes.iter().copied().fold(f64::INFINITY, f64::min)),
        format!("{:.0}", bytes.iter().copied().fold(0.0, f64::max)),
        checked(own.iter().map(|run| run.checked)),
    ]
}
