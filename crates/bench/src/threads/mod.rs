//! `bench threads`: the cost of a program written as threads, compared with the peers.

mod disk;
mod fairness;
mod fifo;
mod memory;
mod spectrum;
mod stm;
mod timers;

use crate::experiment::{Experiment, Offer, Options, Peer, answer, experiment_of};
use crate::regret::{Files, Row, Rule};
use crate::words::name;
use anyhow::{Result, bail};
use clap::ValueEnum;
use disk::Disk;
use fairness::Fairness;
use fifo::Fifo;
use memory::Memory;
use spectrum::Spectrum;
pub(crate) use spectrum::{ClientArgs, run_client};
use stm::Stm;
use timers::Timers;

/// Arguments of `bench threads`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Only>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    memory: memory::Flags,
    #[command(flatten)]
    fifo: fifo::Flags,
    #[command(flatten)]
    disk: disk::Flags,
    #[command(flatten)]
    spectrum: spectrum::Flags,
    #[command(flatten)]
    stm: stm::Flags,
    #[command(flatten)]
    fairness: fairness::Flags,
    #[command(flatten)]
    timers: timers::Flags,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    /// Memory of threads that yield, and the rate of yields
    Memory,
    /// Messages over small pipes, with more threads that wait on idle ones
    Fifo,
    /// Random reads around the kernel's cache
    Disk,
    /// Small tasks that wait, over one connection: threads, events and hybrid
    Spectrum,
    /// Transfers between two accounts chosen at random, as transactions
    Stm,
    /// Starting, moving and canceling many timers, and their lateness
    Timers,
    /// The delay of work from outside while every worker is full of threads that yield
    Fairness,
}

impl Only {
    fn peers(self) -> &'static [Peer] {
        match self {
            Only::Memory => Memory::PEERS,
            Only::Fifo => Fifo::PEERS,
            Only::Disk => Disk::PEERS,
            Only::Spectrum => Spectrum::PEERS,
            Only::Stm => Stm::PEERS,
            Only::Fairness => Fairness::PEERS,
            Only::Timers => Timers::PEERS,
        }
    }
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<Only> =
        Only::value_variants().iter().copied().filter(|it| args.only.is_empty() || args.only.contains(it)).collect();
    let offered: Vec<Offer> = chosen.iter().map(|only| (name(*only), only.peers())).collect();
    let workers = args.options.workers();
    args.options.run("threads-trial", &offered, chosen.contains(&Only::Disk), |session, failures| {
        let mut trials = 0;
        for only in &chosen {
            trials += match only {
                Only::Memory => session.run::<Memory>(&args.memory.cases(&workers), failures),
                Only::Fifo => session.run::<Fifo>(&args.fifo.cases(&workers), failures),
                Only::Disk => session.run::<Disk>(&args.disk.cases(&workers), failures),
                Only::Spectrum => session.run::<Spectrum>(&args.spectrum.cases(&workers), failures),
                Only::Stm => session.run::<Stm>(&args.stm.cases(&workers), failures),
                Only::Timers => session.run::<Timers>(&args.timers.cases(&workers), failures),
                Only::Fairness => session.run::<Fairness>(&args.fairness.cases(&workers), failures),
            }?;
        }
        Ok(trials)
    })
}

/// The rows of `bench regret` that are about threads.
pub(crate) fn regret_rows() -> Vec<Row> {
    const TRIAL: &str = "threads-trial";
    let spectrum = |name, peer| Row::of::<Spectrum>(name, TRIAL, peer, Rule::SharedCores, spectrum::regret_case);
    let fifo = |name, idle| {
        Row::of::<Fifo>(name, TRIAL, Peer::Dapple, Rule::InProcess, move |workers| fifo::regret_case(idle, workers))
    };
    vec![
        fifo("fifo", 0),
        fifo("fifo-19000-idle", 19_000),
        Row::of::<Disk>("disk", TRIAL, Peer::Dapple, Rule::InProcess, disk::regret_case).with(Files::Blocks),
        spectrum("spectrum-tasks", Peer::Dapple),
        spectrum("spectrum-callbacks", Peer::DappleEvents),
        Row::of::<Stm>("stm", TRIAL, Peer::Dapple, Rule::InProcess, stm::regret_case),
        Row::of::<Timers>("timers", TRIAL, Peer::Dapple, Rule::InProcess, timers::regret_case),
    ]
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    match experiment_of(&args.trial)?.as_str() {
        Memory::NAME => answer::<Memory>(&args.trial),
        Fifo::NAME => answer::<Fifo>(&args.trial),
        Timers::NAME => answer::<Timers>(&args.trial),
        Fairness::NAME => answer::<Fairness>(&args.trial),
        Disk::NAME => answer::<Disk>(&args.trial),
        Spectrum::NAME => answer::<Spectrum>(&args.trial),
        Stm::NAME => answer::<Stm>(&args.trial),
        other => bail!("no experiment is called {other}"),
    }
}

/// Arguments of the hidden `threads-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}
