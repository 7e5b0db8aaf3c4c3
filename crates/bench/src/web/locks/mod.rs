//! `bench locks`: the instructions of `dapple serve` that lock memory, for each request, with colors and with `--serial`.

mod disassembly;
mod measure;
mod profile;

pub(crate) use measure::{KnownArgs, run_known};

use super::experiment::Workload;
use super::server::Setting;
use super::site::Site;
use super::workloads::{Hello, Small};
use crate::experiment::Peer;
use crate::output::{Output, Report};
use crate::stats::Table;
use crate::words::{checked, name, verdict};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use measure::{Cost, LoadOf};
use serde::Serialize;
use std::path::Path;

/// Arguments of `bench locks`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Only count the program with a known number of locked instructions, by which this command checks itself
    #[arg(long)]
    check: bool,
    /// The files that are requested (default: all)
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    only: Vec<Only>,
    /// Numbers of workers; `--serial` has one
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Vec<u16>,
    /// Requests that are counted, after as many others
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Clients
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Only {
    /// One tiny file over kept connections
    Hello,
    /// 700 files of 4 KB, five requests a connection
    Small,
}

/// A server under a load.
#[derive(Clone, Copy)]
struct Case {
    only: Only,
    peer: Peer,
    workers: usize,
}

/// One case: one line of JSON.
#[derive(Serialize)]
struct Counted {
    experiment: String,
    peer: Peer,
    workers: usize,
    connections: usize,
    requests: u64,
    /// Of the program itself, without the kernel.
    instructions_per_request: f64,
    locked_per_request: f64,
    /// Those that lock most, first.
    functions: Vec<Function>,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A function of which instructions lock memory.
#[derive(Serialize)]
struct Function {
    function: String,
    file: String,
    locked_per_request: f64,
}

/// Counts what the arguments ask for and reports it; an error where a check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = measure::obstacle() {
        bail!("{why}");
    }
    let folder = tempfile::Builder::new().prefix(super::SCRATCH_PREFIX).tempdir();
    let folder = folder.context("cannot make a folder for the files")?;
    measure::check(folder.path())?;
    if args.check {
        return Ok(());
    }
    super::dapple_program()?;
    let about = args.output.begin()?;
    let cases = cases(args);
    let all = args.output.repeat(
        1,
        |_| cases.clone(),
        |case| (name(case.only), format!("{}/{}", name(case.peer), case.workers)),
        |case| counted(args, *case, folder.path()),
    )?;
    let report = Report { runs: format!("{} requests of each", args.requests), tables: tables(&all), legend: LEGEND };
    args.output.end(&about, &report)?;
    verdict(&all, |one| {
        let problem = one.problem.as_ref()?;
        Some(format!("{} of {}, {} workers: {problem}", name(one.peer), one.experiment, one.workers))
    })
}

fn cases(args: &Args) -> Vec<Case> {
    let mut cases = Vec::new();
    for &only in Only::value_variants().iter().filter(|only| args.only.is_empty() || args.only.contains(only)) {
        cases.push(Case { only, peer: Peer::DappleSerial, workers: 1 });
        let colored = |&workers: &u16| Case { only, peer: Peer::Dapple, workers: usize::from(workers) };
        cases.extend(args.workers.iter().map(colored));
    }
    cases
}

fn counted(args: &Args, case: Case, folder: &Path) -> Counted {
    let cost = match case.only {
        Only::Hello => cost::<Hello>(args, case, folder),
        Only::Small => cost::<Small>(args, case, folder),
    };
    let (cost, problem) = match cost {
        Ok(cost) => (cost, None),
        Err(error) => (Cost::default(), Some(format!("{error:#}"))),
    };
    Counted {
        experiment: name(case.only),
        peer: case.peer,
        workers: case.workers,
        connections: usize::from(args.connections),
        requests: args.requests,
        instructions_per_request: cost.instructions,
        locked_per_request: cost.locked_total(),
        functions: functions(&cost),
        checked: problem.is_none(),
        problem,
    }
}

fn cost<W: Workload>(args: &Args, case: Case, folder: &Path) -> Result<Cost> {
    let site = Site::write(folder, W::PLAN.site, 0)?;
    let scratch = tempfile::tempdir_in(folder)?;
    let setting = Setting {
        site: &site,
        scratch: scratch.path(),
        workers: case.workers,
        cores: &[],
        cache_mb: W::PLAN.cache_mb,
        weather: super::server::Weather::FAIR,
        tls: false,
        go_program: None,
        group: None,
    };
    let load = LoadOf { site: &site, connections: usize::from(args.connections), per_connection: W::PLAN.requests };
    measure::server(&setting, &load, case.peer == Peer::DappleSerial, args.requests)
}

fn functions(cost: &Cost) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for ((function, file), locked) in &cost.locked {
        functions.push(Function { function: function.clone(), file: file.clone(), locked_per_request: *locked });
    }
    functions.sort_by(|one, other| {
        let locked = other.locked_per_request.total_cmp(&one.locked_per_request);
        locked.then_with(|| (&one.function, &one.file).cmp(&(&other.function, &other.file)))
    });
    functions
}

fn tables(all: &[Counted]) -> Vec<(String, Table)> {
    let head = ["peer", "of", "workers", "instructions", "locked", "checked"];
    let mut sums = Table::new(&head);
    let mut tables = Vec::new();
    for one in all {
        sums.row(vec![
            name(one.peer),
            one.experiment.clone(),
            one.workers.to_string(),
            format!("{:.0}", one.instructions_per_request),
            format!("{:.2}", one.locked_per_request),
            checked([one.checked].into_iter()),
        ]);
        let mut table = Table::new(&["function", "file", "locked"]);
        for function in one.functions.iter().take(FUNCTIONS_MAX) {
            let cells = [function.function.clone(), function.file.clone()];
            table.row([&cells[..], &[format!("{:.2}", function.locked_per_request)]].concat());
        }
        let title = format!("{} of {}, workers: {}", name(one.peer), one.experiment, one.workers);
        tables.push((title, table));
    }
    tables.insert(0, ("instructions for each request".to_owned(), sums));
    tables
}

const FUNCTIONS_MAX: usize = 10;

const LEGEND: &str = "\
Instructions that the server ran for each request, without the kernel's, counted by valgrind's callgrind: the difference between
a run of N requests and one of twice as many, by N. Locked: those with the prefix `lock`, and `xchg` with memory. A function
of the standard library counts for the function that called it. valgrind runs one thread at a time, so that no instruction fails for
another thread, and a second worker steals at other moments than on two cores. Every body is compared byte for byte, and a program with a
known number of locked instructions is counted first.";
