//! `bench io`: the figures of the I/O core, Gribble's Figures 36 to 39.

mod files;
mod packets;

use crate::experiment::{Experiment, Offer, Options, Peer, answer, experiment_of};
use crate::regret::{Row, Rule};
use crate::words::name;
use anyhow::{Result, bail};
use clap::ValueEnum;
use files::Files;
use packets::Packets;

/// Arguments of `bench io`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Only>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    packets: packets::Flags,
    #[command(flatten)]
    files: files::Flags,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    /// Packets to a server and back: throughput and round trips by their size
    Packets,
    /// Random reads of a file, through the kernel's cache and around it, by the number of readers
    Files,
}

impl Only {
    fn peers(self) -> &'static [Peer] {
        match self {
            Only::Packets => Packets::PEERS,
            Only::Files => Files::PEERS,
        }
    }
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<Only> =
        Only::value_variants().iter().copied().filter(|it| args.only.is_empty() || args.only.contains(it)).collect();
    let offered: Vec<Offer> = chosen.iter().map(|only| (name(*only), only.peers())).collect();
    let workers = args.options.workers();
    args.options.run("io-trial", &offered, chosen.contains(&Only::Files), |session, failures| {
        let mut trials = 0;
        for only in &chosen {
            trials += match only {
                Only::Packets => session.run::<Packets>(&args.packets.cases(&workers), failures),
                Only::Files => session.run::<Files>(&args.files.cases(&workers), failures),
            }?;
        }
        Ok(trials)
    })
}

/// The rows of `bench regret` that are about packets.
pub(crate) fn regret_rows() -> Vec<Row> {
    packets::regret_cases()
        .into_iter()
        .map(|(name, case)| Row::of::<Packets>(name, "io-trial", Peer::Dapple, Rule::SharedCores, case))
        .collect()
}

/// Arguments of the hidden `io-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    match experiment_of(&args.trial)?.as_str() {
        Packets::NAME => answer::<Packets>(&args.trial),
        Files::NAME => answer::<Files>(&args.trial),
        other => bail!("no experiment is called {other}"),
    }
}
