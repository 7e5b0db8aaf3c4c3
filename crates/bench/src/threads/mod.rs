//! `bench threads`: what a program that is written as threads costs, beside how others run it.

mod disk;
mod fairness;
mod fifo;
mod memory;
mod spectrum;
mod stm;
mod timers;

use crate::chart::make_plot_folder;
use crate::experiment::{BlockFile, Experiment, Peer, Session, answer, experiment_of};
use crate::go::GoPeers;
use crate::output::Output;
use crate::words::{check_secs, name};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use disk::Disk;
use fairness::Fairness;
use fifo::Fifo;
use memory::Memory;
use rustix::thread::{CpuSet, sched_setaffinity};
use spectrum::Spectrum;
pub(crate) use spectrum::{ClientArgs, run_client};
use std::path::PathBuf;
use stm::Stm;
use timers::Timers;

/// Arguments of `bench threads`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Which experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Only>,
    /// Who runs (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, where time is what ends one
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
    /// Also write SVG files to this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Folder for the file that is read (disk); not in memory
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Megabytes (2^20) of that file
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    file_mb: u64,
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

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    /// Memory of threads that yield, and how fast they do
    Memory,
    /// Messages over small pipes, beside threads that wait on idle ones
    Fifo,
    /// Random reads past the kernel's cache
    Disk,
    /// Small tasks that wait, over one connection: threads, events and hybrid
    Spectrum,
    /// Transfers between two accounts chosen at random, as transactions
    Stm,
    /// Starting, moving and taking back many timers, and how late they are
    Timers,
    /// How soon work from outside runs while every worker is full of threads that yield
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

/// Runs what the arguments ask for and reports it; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let chosen: Vec<Only> =
        Only::value_variants().iter().copied().filter(|it| args.only.is_empty() || args.only.contains(it)).collect();
    let offered = chosen.iter().map(|only| (name(*only), only.peers())).collect::<Vec<_>>();
    check_peers(&args.peer, &offered)?;
    if let Some(folder) = &args.plot {
        make_plot_folder(folder)?;
    }
    let about = args.output.begin();
    let disk = chosen.contains(&Only::Disk);
    let file = disk.then(|| BlockFile::write(&args.folder, args.file_mb)).transpose()?;
    let go = GoPeers::build_for(&args.peer, &offered);
    let session = Session {
        output: &args.output,
        about: &about,
        trial_command: "threads-trial",
        peers: &args.peer,
        runs: args.runs,
        secs: args.secs,
        file: file.as_ref().map(BlockFile::path).unwrap_or_default(),
        go_program: go.as_ref().map(GoPeers::program),
        plot: args.plot.clone(),
    };
    let workers: Vec<usize> = args.workers.iter().map(|&workers| usize::from(workers)).collect();
    let (mut trials, mut failures) = (0, Vec::new());
    for only in chosen {
        trials += match only {
            Only::Memory => session.run::<Memory>(&args.memory.cases(&workers), &mut failures),
            Only::Fifo => session.run::<Fifo>(&args.fifo.cases(&workers), &mut failures),
            Only::Disk => session.run::<Disk>(&args.disk.cases(&workers), &mut failures),
            Only::Spectrum => session.run::<Spectrum>(&args.spectrum.cases(&workers), &mut failures),
            Only::Stm => session.run::<Stm>(&args.stm.cases(&workers), &mut failures),
            Only::Timers => session.run::<Timers>(&args.timers.cases(&workers), &mut failures),
            Only::Fairness => session.run::<Fairness>(&args.fairness.cases(&workers), &mut failures),
        }?;
    }
    ensure!(trials > 0, "nothing was run: see above why everything was left out");
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
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
    /// What to do, as JSON
    trial: String,
}

/// Lets this process use so many cores only: the workers of those whose threads the kernel runs.
fn pin_to_cores(cores: usize) -> Result<()> {
    let mut set = CpuSet::new();
    for core in 0..cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on {cores} cores"))
}

/// An error where somebody was asked for who takes part in none of the experiments.
pub(crate) fn check_peers(asked: &[Peer], offered: &[(String, &[Peer])]) -> Result<()> {
    for peer in asked {
        if offered.iter().all(|(_, peers)| !peers.contains(peer)) {
            let names = |peers: &[Peer]| peers.iter().map(|peer| name(*peer)).collect::<Vec<_>>().join(", ");
            let lists: Vec<String> =
                offered.iter().map(|(experiment, peers)| format!("{experiment} has {}", names(peers))).collect();
            bail!("--peer {} takes no part in what is run: {}", name(*peer), lists.join("; "));
        }
    }
    Ok(())
}
