//! `bench colors`: serial within a color, parallel across colors, compared with current
//! alternatives.

mod actix;
pub(crate) mod case;
mod dapple;
mod kameo;
mod ledger;
mod outside;
mod plot;
mod regret;
mod report;
pub(crate) mod spin;
pub(crate) mod steady;
pub(crate) mod table2;
mod threads;
mod tokio_mpsc;
mod tokio_mutex;
mod tokio_spawn_mutex;
mod trial;

pub(crate) use regret::regret_rows;
pub(crate) use trial::{TrialArgs, run_trial};

use crate::machine::{own_command, run_apart};
use crate::output::Output;
use crate::words::{check_secs, name, verdict};
use anyhow::{Result, ensure};
use case::{Case, Peer, Placement, USUAL_IN_FLIGHT, Workload};
use outside::Outside;
use plot::Plots;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use trial::{Measured, Outcome, SETTLE_LIMIT};

/// Arguments of `bench colors`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The peers (default: all that have a form of the workload)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// The workloads
    #[arg(long, value_delimiter = ',', value_name = "W,...", default_value = "w1")]
    workload: Vec<Workload>,
    /// Nanoseconds of work in each callback
    #[arg(long, value_delimiter = ',', value_name = "NS,...", default_value = "0,100,1000", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    work_ns: Vec<u64>,
    /// Callbacks in flight: per color in W1 and in all in W4 (default: 1 and 64), in all in W5
    /// (default: 64); W2 and W3 have their own
    #[arg(long, value_delimiter = ',', value_name = "K,...", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    in_flight: Vec<u64>,
    /// Colors (default: 16; 1000 in W2 and W5; W4 always has 2)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    colors: Option<u32>,
    /// Initial homes of the colors, for peers with a choice; with one worker there is none
    #[arg(long, value_delimiter = ',', value_name = "WHERE,...", default_value = "gathered,split")]
    placement: Vec<Placement>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,8", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, after a warm-up of a quarter of that
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
    /// Also draw rates over workers and CPU per callback, two SVG files per case, into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Runs the requested cases and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let cases = cases(args)?;
    let plots = args.plot.as_deref().map(Plots::in_folder).transpose()?;
    let about = args.output.begin()?;
    let outside = Outside::build_for(&cases.iter().flat_map(|case| peers(args, case.workload)).collect::<Vec<Peer>>());
    let trials = |case: Case, run, rounds_per_ns| trials(args, &outside, case, run, rounds_per_ns);
    let planned = cases.iter().map(|case| trials(*case, 0, 0.0).len() * args.runs as usize).sum::<usize>();
    ensure!(planned > 0, "nothing can be run: see above why everything was left out");
    eprintln!("{planned} runs, about {:.0} s", planned as f64 * (args.secs * 1.25 + 0.1));
    let rounds_per_ns = spin::calibrate();
    let mut all = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        eprintln!("[{}/{}] {}", index + 1, cases.len(), case.title());
        all.extend(args.output.repeat(
            args.runs,
            |run| trials(*case, run, rounds_per_ns),
            |trial| (String::new(), report::place_name(trial)),
            |trial| apart(trial, &outside).unwrap_or_else(|error| Measured::failed(trial, format!("{error:#}"))),
        )?);
    }
    args.output.end(&about, &report::report(&all, args.runs, args.secs))?;
    if let Some(plots) = plots {
        for file in plots.write(&about, &all)? {
            eprintln!("drew {}", file.display());
        }
    }
    verdict(&all, report::failure)
}

/// The requested cases, each once, or the mistake in the request.
fn cases(args: &Args) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for &workload in &args.workload {
        ensure!(
            workload != Workload::W5 || args.colors != Some(1),
            "w5 moves units between two accounts: pass --colors 2 or more"
        );
        ensure!(
            !peers(args, workload).is_empty(),
            "none of the peers asked for has a form of {}: leave --peer out to see those that do",
            name(workload)
        );
        for in_flight in in_flight(args, workload) {
            for &work_ns in &args.work_ns {
                let case = Case::new(workload, args.colors.map(|count| count as usize), in_flight, work_ns);
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
    }
    Ok(cases)
}

/// The requested numbers in flight; `None` is the workload's usual number.
fn in_flight(args: &Args, workload: Workload) -> Vec<Option<u64>> {
    match workload {
        _ if !args.in_flight.is_empty() => args.in_flight.iter().copied().map(Some).collect(),
        Workload::W1 | Workload::W4 => USUAL_IN_FLIGHT.map(Some).to_vec(),
        _ => vec![None],
    }
}

fn peers(args: &Args, workload: Workload) -> Vec<Peer> {
    let wanted = |peer: &Peer| args.peer.is_empty() || args.peer.contains(peer);
    Peer::ALL.into_iter().filter(|peer| wanted(peer) && peer.runs(workload)).collect()
}

/// The trials of one repetition. The peers take turns, and each repetition starts with another, so
/// that neither a drifting machine nor the order favors one.
fn trials(args: &Args, outside: &Outside, case: Case, run: usize, rounds_per_ns: f64) -> Vec<TrialArgs> {
    let mut peers = peers(args, case.workload);
    peers.retain(|peer| outside.runs(*peer));
    let first = run % peers.len().max(1);
    peers.rotate_left(first);
    let mut trials = Vec::new();
    for peer in peers {
        for workers in in_order(&args.workers) {
            for placement in placements(args, peer, workers) {
                trials.push(TrialArgs {
                    case,
                    peer,
                    workers: usize::from(workers),
                    placement,
                    run,
                    secs: args.secs,
                    spin_rounds: (case.work_ns as f64 * rounds_per_ns).round() as u64,
                });
            }
        }
    }
    trials
}

/// The numbers, each once, from the smallest.
fn in_order(numbers: &[u16]) -> BTreeSet<u16> {
    numbers.iter().copied().collect()
}

fn placements(args: &Args, peer: Peer, workers: u16) -> Vec<Option<Placement>> {
    if workers == 1 || !peer.places() {
        return vec![None];
    }
    let all = [Placement::Gathered, Placement::Split];
    all.into_iter().filter(|placement| args.placement.contains(placement)).map(Some).collect()
}

/// Runs a trial in a separate process.
fn apart(args: &TrialArgs, outside: &Outside) -> Result<Measured> {
    let limit = Duration::from_secs_f64(args.secs * 2.0) + SETTLE_LIMIT + Duration::from_secs(20);
    let Case { workload, colors, in_flight, work_ns } = args.case;
    let sizes = [
        ("--workload", name(workload)),
        ("--colors", colors.to_string()),
        ("--in-flight", in_flight.to_string()),
        ("--secs", args.secs.to_string()),
        ("--spin-rounds", args.spin_rounds.to_string()),
    ];
    if let Some(mut command) = outside.command(args)? {
        tell(&mut command, &sizes);
        return Ok(run_apart::<Outcome>(command, limit)?.measured(args));
    }
    let mut command = own_command("colors-trial")?;
    tell(&mut command, &sizes);
    let others = [
        ("--work-ns", work_ns.to_string()),
        ("--peer", name(args.peer)),
        ("--workers", args.workers.to_string()),
        ("--run", args.run.to_string()),
    ];
    tell(&mut command, &others);
    if let Some(placement) = args.placement {
        command.arg("--placement").arg(name(placement));
    }
    run_apart(command, limit)
}

fn tell(command: &mut Command, flags: &[(&str, String)]) {
    for (flag, value) in flags {
        command.arg(flag).arg(value);
    }
}
