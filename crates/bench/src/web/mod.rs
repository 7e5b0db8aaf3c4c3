//! `bench web`: the papers' web server experiments with today's servers, under `bench load`.

mod beside;
mod experiment;
mod locks;
mod memory_limit;
mod net;
mod papers;
mod queues;
mod server;
mod site;
mod syn_flood;
mod trial;
mod workloads;

pub(crate) use locks::{Args as LocksArgs, KnownArgs, run as run_locks, run_known};
pub(crate) use server::{FloorArgs, HyperArgs, dapple_program, free_port, run_floor, run_hyper};
pub(crate) use syn_flood::{FloodArgs, run_flood};

use crate::experiment::{Offer, Options, Peer, Session, answer, experiment_of};
use crate::regret::{Files, Row, Rule};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use experiment::{Case, Web, Workload};
use net::{NetBulk, NetClients, NetFlood, NetHello, NetLoss, NetQueues, NetSmall};
use site::{Site, SiteKind};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use workloads::{Cold, EncryptedFiles, Handshakes, Hello, Misses, Overload, Small, Specweb, Stalled, Tls};

/// Arguments of `bench web`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Only>,
    /// Clients, in place of those of the experiment
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..=19_000))]
    connections: Vec<u32>,
    /// The memory limit for the server and the kernel's cache of its files together in `cold`, in
    /// MB (2^20); 0 for no limit
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "256")]
    memory_mb: Vec<u64>,
    /// Files of `cold`; PLDI 2007 had 131072
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    cold_files: u32,
    #[command(flatten)]
    options: Options,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    /// 700 files of 4 KB, five requests a connection, 800 clients
    Small,
    /// 720 files, 100 MB, as in SPECweb99, ten requests a connection, 800 clients
    Specweb,
    /// One tiny file over 64 kept connections
    Hello,
    /// One tiny file over kept connections, from 100 to 8,000 clients
    Overload,
    /// One file of 200 MB by TLS 1.3, eight clients
    Tls,
    /// One file of 200 MB by TLS 1.3, from an encrypted file service, for one to eight clients
    Files,
    /// Full handshakes of TLS 1.3, 64 clients
    Handshakes,
    /// Many files of 16 KB, a cache of 100 MB, and a kernel that has forgotten the files
    Cold,
    /// Eight clients that request one file of 200 MB at the same time, which is in no cache
    Misses,
    /// 13 bytes beside 500 and 5,000 clients that have asked for 200 MB and read nothing
    Stalled,
    #[value(skip)]
    Net(OnlyNet),
}

/// An experiment of `bench net`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnlyNet {
    /// One tiny file over 64 kept connections
    Hello,
    /// 700 files of 4 KB, five requests a connection, 800 clients
    Small,
    /// One file of 200 MB, in memory, for one and for eight clients
    Bulk,
    /// Files of many sizes for 4 and 64 clients, while one packet of a hundred is lost
    Loss,
    /// One tiny file over 10,000 kept connections
    Clients,
    /// Answers of 4 KB on interfaces in memory, one for each worker, each with 16 clients
    Queues,
    /// Small files for 64 clients, beside 100,000 beginnings of connections a second that go on no further
    Flood,
}

/// Arguments of `bench net`.
#[derive(clap::Args)]
pub(crate) struct NetArgs {
    /// The experiments (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<OnlyNet>,
    /// Clients, in place of those of the experiment
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = clap::value_parser!(u32).range(1..=15_000))]
    connections: Vec<u32>,
    #[command(flatten)]
    options: Options,
}

/// Calls a function for the type of a workload.
macro_rules! with_workload {
    ($only:expr, $function:ident ( $($argument:expr),* )) => {
        match $only {
            Only::Small => $function::<Small>($($argument),*),
            Only::Specweb => $function::<Specweb>($($argument),*),
            Only::Hello => $function::<Hello>($($argument),*),
            Only::Overload => $function::<Overload>($($argument),*),
            Only::Tls => $function::<Tls>($($argument),*),
            Only::Files => $function::<EncryptedFiles>($($argument),*),
            Only::Handshakes => $function::<Handshakes>($($argument),*),
            Only::Cold => $function::<Cold>($($argument),*),
            Only::Misses => $function::<Misses>($($argument),*),
            Only::Stalled => $function::<Stalled>($($argument),*),
            Only::Net(OnlyNet::Hello) => $function::<NetHello>($($argument),*),
            Only::Net(OnlyNet::Small) => $function::<NetSmall>($($argument),*),
            Only::Net(OnlyNet::Bulk) => $function::<NetBulk>($($argument),*),
            Only::Net(OnlyNet::Loss) => $function::<NetLoss>($($argument),*),
            Only::Net(OnlyNet::Clients) => $function::<NetClients>($($argument),*),
            Only::Net(OnlyNet::Queues) => $function::<NetQueues>($($argument),*),
            Only::Net(OnlyNet::Flood) => $function::<NetFlood>($($argument),*),
        }
    };
}

fn offer<W: Workload>() -> Offer {
    (W::NAME.to_owned(), W::PEERS)
}

fn site_kind<W: Workload>() -> SiteKind {
    W::PLAN.site
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = chosen(&args.only);
    let measured = Measured { connections: &args.connections, memory_mb: &args.memory_mb, cold_files: args.cold_files };
    measured.run(&chosen, &args.options)
}

/// As [`run`], for `bench net`.
pub(crate) fn run_net(args: &NetArgs) -> Result<()> {
    let chosen: Vec<Only> = chosen(&args.only).into_iter().map(Only::Net).collect();
    Measured { connections: &args.connections, memory_mb: &[0], cold_files: 1 }.run(&chosen, &args.options)
}

/// All values, or those that were asked for, in the order of their declaration.
fn chosen<T: ValueEnum + PartialEq + Copy>(asked: &[T]) -> Vec<T> {
    T::value_variants().iter().copied().filter(|it| asked.is_empty() || asked.contains(it)).collect()
}

/// The numbers of a command.
struct Measured<'a> {
    connections: &'a [u32],
    memory_mb: &'a [u64],
    cold_files: u32,
}

impl Measured<'_> {
    fn run(&self, chosen: &[Only], options: &Options) -> Result<()> {
        let offered: Vec<Offer> = chosen.iter().map(|only| with_workload!(*only, offer())).collect();
        let workers = options.workers();
        let mut folder = None;
        let prepare = || {
            let made = write_sites(chosen, self.cold_files as usize)?;
            let path = made.path().to_owned();
            folder = Some(made);
            Ok(path)
        };
        options.run_with("web-trial", &offered, prepare, |session, failures| {
            let mut trials = 0;
            for only in chosen {
                trials += with_workload!(*only, run_one(session, self, &workers, failures))?;
            }
            Ok(trials)
        })
    }
}

fn run_one<W: Workload>(
    session: &Session,
    measured: &Measured<'_>,
    workers: &[usize],
    failures: &mut Vec<String>,
) -> Result<usize> {
    session.run::<Web<W>>(&Web::<W>::cases(measured.connections, workers, measured.memory_mb), failures)
}

/// The rows of `bench regret` that are about web servers.
pub(crate) fn regret_rows() -> Vec<Row> {
    fn row<W: Workload>(name: &str, connections: usize) -> Row {
        let case = move |workers| Case { connections, workers, memory_mb: None };
        Row::of::<Web<W>>(name, "web-trial", Peer::Dapple, Rule::SharedCores, case).with(Files::Sites)
    }
    vec![
        row::<Hello>("hello", 64),
        row::<Small>("small", 800),
        row::<Specweb>("specweb", 800),
        row::<Overload>("clients-8000", 8_000),
    ]
}

/// Writes the files of these rows' web servers.
pub(crate) fn write_regret_sites() -> Result<TempDir> {
    write_sites(&[Only::Hello, Only::Small, Only::Specweb], 0)
}

/// Writes the files of the chosen experiments.
fn write_sites(chosen: &[Only], many: usize) -> Result<TempDir> {
    let folder =
        tempfile::Builder::new().prefix(SCRATCH_PREFIX).tempdir().context("cannot make a folder for the files")?;
    remove_on_interrupt(folder.path())?;
    let mut kinds: Vec<SiteKind> = Vec::new();
    for only in chosen {
        let kind = with_workload!(*only, site_kind());
        if !kinds.contains(&kind) {
            kinds.push(kind);
            Site::write(folder.path(), kind, many)?;
        }
    }
    Ok(folder)
}

/// The prefix of the bench's own folders, which it may open to other users.
const SCRATCH_PREFIX: &str = "dapple-bench-";

/// Ctrl-C and SIGTERM: the files are removed here; servers and load end with this process, as each
/// has asked the kernel to.
fn remove_on_interrupt(folder: &Path) -> Result<()> {
    let folder: PathBuf = folder.to_owned();
    ctrlc::set_handler(move || {
        let _ = std::fs::remove_dir_all(&folder);
        std::process::exit(130);
    })
    .context("cannot watch for Ctrl-C")
}

/// Arguments of the hidden `web-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    let wanted = experiment_of(&args.trial)?;
    let of_net = OnlyNet::value_variants().iter().copied().map(Only::Net);
    let mut all = Only::value_variants().iter().copied().chain(of_net);
    match all.find(|only| with_workload!(*only, offer()).0 == wanted) {
        Some(only) => with_workload!(only, answer_of(&args.trial)),
        None => bail!("no experiment is called {wanted}"),
    }
}

fn answer_of<W: Workload>(trial: &str) -> Result<()> {
    answer::<Web<W>>(trial)
}
