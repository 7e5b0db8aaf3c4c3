//! One run, in a separate process.
//!
//! Thus no peer inherits another's heap, threads or stuck state, a hang costs one run, and the CPU
//! time of the process is the CPU time of the run. State that lives as long as the run may then
//! live as long as the process.

use super::case::{Case, Peer, Placement};
use super::ledger::Run;
use super::spin::Spin;
use super::{actix, dapple, kameo, threads, tokio_mpsc, tokio_mutex, tokio_spawn_mutex};
use crate::machine::end_with_parent;
use crate::usage::{Switches, Usage};
use crate::words::name;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::{Duration, Instant};

/// Arguments of the hidden `colors-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(crate) case: Case,
    #[arg(long)]
    pub(crate) peer: Peer,
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) placement: Option<Placement>,
    #[arg(long)]
    pub(crate) run: usize,
    #[arg(long)]
    pub(crate) secs: f64,
    #[arg(long)]
    pub(crate) spin_rounds: u64,
}

/// The started run of a peer.
pub(crate) struct Started {
    /// Chains that must end after the run was stopped.
    pub(crate) tokens: u64,
    /// Kept alive until the chains have ended.
    pub(crate) keep: Box<dyn Any>,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Workload, colors, in_flight, work_ns.
    #[serde(flatten)]
    pub(crate) case: Case,
    /// The peer that ran it.
    pub(crate) peer: Peer,
    /// Threads that ran callbacks.
    pub(crate) workers: usize,
    /// The homes of the colors at the start; null with one worker, and for a peer without a choice.
    pub(crate) placement: Option<Placement>,
    /// Number of the repetition, from 0.
    pub(crate) run: usize,
    /// Seconds measured, after the warm-up.
    pub(crate) secs: f64,
    /// Callbacks per second of wall-clock time.
    pub(crate) rate_per_s: f64,
    /// User and system time of the whole process per callback.
    pub(crate) cpu_ns_per_op: f64,
    /// Context switches of the whole process per callback.
    #[serde(flatten)]
    pub(crate) switches: Switches,
    /// Whether the run's own check of counts and order passed.
    pub(crate) checked: bool,
    /// Callbacks that met a count they did not expect; must be 0 for a peer that promises order.
    pub(crate) order_breaks: u64,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Measured {
    /// A run that yielded no figures.
    pub(crate) fn failed(args: &TrialArgs, problem: String) -> Measured {
        Measured {
            case: args.case,
            peer: args.peer,
            workers: args.workers,
            placement: args.placement,
            run: args.run,
            secs: 0.0,
            rate_per_s: 0.0,
            cpu_ns_per_op: 0.0,
            switches: Switches::default(),
            checked: false,
            order_breaks: 0,
            problem: Some(problem),
        }
    }
}

/// The longest wait for the chains to end.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The check's message for a run in which all callbacks ran before or after the measured time.
const NOTHING_MEASURED: &str = "no callback ran while it was measured: is the machine busy? pass more --secs";

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

fn measure(args: &TrialArgs) -> Result<Measured> {
    let run: &'static Run = Box::leak(Box::new(Run::new(args.case, Spin::of_rounds(args.spin_rounds))));
    let placement = args.placement.unwrap_or(Placement::Gathered);
    let started = match args.peer {
        Peer::Dapple => dapple::start(run, args.workers, placement),
        Peer::TokioMpsc => tokio_mpsc::start(run, args.workers),
        Peer::TokioSpawnMutex => tokio_spawn_mutex::start(run, args.workers),
        Peer::Kameo => kameo::start(run, args.workers),
        Peer::Actix => actix::start(run, args.workers, placement),
        Peer::TokioMutex => tokio_mutex::start(run, args.workers),
        Peer::ParkingLot => threads::start(run, args.workers),
        Peer::GoChannel | Peer::GoMailbox | Peer::GoMutex | Peer::AsioStrand => {
            bail!("{} is a program of its own", name(args.peer))
        }
    }?;
    Ok(watch(run, started, args.secs, args.peer.keeps_order()).measured(args))
}

/// The outcome of one run. Programs in other languages print it.
#[derive(Deserialize)]
pub(crate) struct Outcome {
    pub(crate) secs: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_ns_per_op: f64,
    #[serde(flatten)]
    pub(crate) switches: Switches,
    pub(crate) order_breaks: u64,
    /// The finding of the check.
    pub(crate) problem: Option<String>,
}

impl Outcome {
    /// The line of the run.
    pub(crate) fn measured(self, args: &TrialArgs) -> Measured {
        Measured {
            secs: self.secs,
            rate_per_s: self.rate_per_s,
            cpu_ns_per_op: self.cpu_ns_per_op,
            switches: self.switches,
            checked: self.problem.is_none(),
            order_breaks: self.order_breaks,
            problem: self.problem,
            ..Measured::failed(args, String::new())
        }
    }
}

/// Measures the started run, stops it, and checks its result.
pub(crate) fn watch(run: &Run, started: Started, secs: f64, ordered: bool) -> Outcome {
    // Warm-up: threads are up, chains run steadily, and the scheduler has moved the colors.
    std::thread::sleep(Duration::from_secs_f64((secs / 4.0).clamp(0.1, 0.5)));
    let (before, ops, begin) = (Usage::own(), run.ops(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(secs));
    let (ops, secs) = (run.ops() - ops, begin.elapsed().as_secs_f64());
    let usage = Usage::own().since(before);

    run.stop();
    let verdict = run.settle(started.tokens, SETTLE_LIMIT).and_then(|()| run.verify(ordered));
    let verdict = verdict.and_then(|()| match ops {
        0 => Err(NOTHING_MEASURED.to_owned()),
        _ => Ok(()),
    });
    // The time that a peer takes to stop is not measured here; and if a peer cannot stop, its
    // verdict must still be printed.
    std::mem::forget(started.keep);
    let cpu_ns_per_op = if ops == 0 { 0.0 } else { usage.cpu.as_nanos() as f64 / ops as f64 };
    let (rate_per_s, switches) = (ops as f64 / secs, usage.switches(ops));
    Outcome { secs, rate_per_s, cpu_ns_per_op, switches, order_breaks: run.order_breaks(), problem: verdict.err() }
}

/// Runs a trial for longer and longer, until callbacks have run within the measured time.
#[cfg(test)]
pub(crate) fn unless_starved<T>(run: impl Fn(f64) -> (Option<String>, T)) -> T {
    for secs in [0.05, 0.5, 5.0] {
        let (problem, measured) = run(secs);
        if !problem.is_some_and(|problem| problem == NOTHING_MEASURED || problem == super::ledger::NOTHING_RAN) {
            return measured;
        }
    }
    run(30.0).1
}

#[cfg(test)]
mod tests {
    use super::super::case::Workload;
    use super::*;
    use clap::ValueEnum;

    fn check(peer: Peer, workload: Workload, placement: Option<Placement>, in_flight: u64) {
        let case = Case::new(workload, Some(4), Some(in_flight), 0);
        let run = |secs| {
            let args = TrialArgs { case, peer, workers: 2, placement, run: 0, secs, spin_rounds: 0 };
            let measured = measure(&args).expect("the peer starts");
            (measured.problem.clone(), measured)
        };
        let measured = unless_starved(run);
        assert!(measured.checked, "{measured:?}");
    }

    #[test]
    fn every_peer_passes_its_check_on_every_workload() {
        for peer in Peer::ALL {
            for &workload in Workload::value_variants() {
                // The others are separate programs.
                if peer.program().is_some() {
                    continue;
                }
                if peer.runs(workload) {
                    // Two, as W5 on threads has one each.
                    check(peer, workload, None, 2);
                    check(peer, workload, None, 8);
                }
                if peer.runs(workload) && peer.places() {
                    check(peer, workload, Some(Placement::Split), 8);
                }
            }
        }
    }
}
