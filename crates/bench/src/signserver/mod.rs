//! `bench signserver`: the SignServer of S. Gribble's dissertation (Berkeley, 2000; section 4.4),
//! which `dapple sign` implements in four variants.
//!
//! Figures 22, 24, 26 and 28 are throughput and latency of each by the number of tasks in flight,
//! Figure 30 puts all four into one plot, and Figure 29 is throughput over time while one of two
//! servers is killed and restarted.

mod account;
mod client;
mod failover;
mod figures;
mod log;
mod program;
mod server;
mod sweep;
#[cfg(test)]
mod tests;

use crate::experiment::{Experiment, Offer, Options, Peer, answer, experiment_of};
use crate::regret::{Files, Row, Rule};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use failover::Failover;
use std::path::Path;
use sweep::{Case, Sweep};
use tempfile::TempDir;

/// Arguments of `bench signserver`.
#[derive(clap::Args)]
#[command(
    mut_arg("secs", |secs| secs.default_value("5").help("Seconds measured per run; of each part of failover")),
    mut_arg("workers", |workers| workers.default_value("2").help("Numbers of workers of each server")),
    mut_arg("folder", |folder| folder.default_value("/var/tmp").help("Folder for the logs; not in memory where --sync matters")),
    mut_arg("peer", |peer| peer.visible_alias("variant")),
    mut_arg("file_mb", |file_mb| file_mb.hide(true))
)]
pub(crate) struct Args {
    /// The experiments
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...", default_value = "sweep,failover")]
    only: Vec<What>,
    /// Numbers of tasks in flight (sweep)
    #[arg(
        long, value_delimiter = ',', value_name = "P,...", default_value = "1,2,4,8,16,32,64,128,256,512,1024",
        value_parser = clap::value_parser!(u32).range(1..=IN_FLIGHT_MAX)
    )]
    in_flight: Vec<u32>,
    /// The number of tasks in flight while a server is killed (failover)
    #[arg(long, value_name = "P", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=IN_FLIGHT_MAX))]
    kill_in_flight: u32,
    /// The number of connections; no more than there are tasks in flight, and at least two in
    /// failover
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    connections: u32,
    /// Whether servers answer only after records are on the disk; no,yes runs both [default: no;
    /// without a value: yes]
    #[arg(
        long, value_delimiter = ',', value_name = "no|yes,...", num_args = 0..=1, default_value = "no", hide_default_value = true,
        default_missing_value = "yes"
    )]
    sync: Vec<Sync>,
    /// Check digests only in the warm-up: the check takes the client as much CPU time as signing
    /// takes the server
    #[arg(long)]
    unverified: bool,
    #[command(flatten)]
    options: Options,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Throughput and latency by the number of tasks in flight
    Sweep,
    /// Throughput over time while one of two servers is killed and restarted
    Failover,
}

/// Whether servers must be durable.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sync {
    No,
    Yes,
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let in_flight: Vec<usize> = args.in_flight.iter().map(|&in_flight| in_flight as usize).collect();
    let sweeps = if args.only.contains(&What::Sweep) { cases(args, &in_flight, 1) } else { Vec::new() };
    let kills = if args.only.contains(&What::Failover) {
        cases(args, &[args.kill_in_flight as usize], SERVERS)
    } else {
        Vec::new()
    };
    let mut offered: Vec<Offer> = Vec::new();
    offered.extend((!sweeps.is_empty()).then(|| (Sweep::NAME.to_owned(), server::PEERS)));
    offered.extend((!kills.is_empty()).then(|| (Failover::NAME.to_owned(), server::PEERS)));
    let mut folder = None;
    let prepare = || {
        let made = log_folder(args.options.folder())?;
        let path = made.path().to_owned();
        folder = Some(made);
        Ok(path)
    };
    args.options.run_with("signserver-trial", &offered, prepare, |session, failures| {
        let secs = sweeps.len() as f64 * sweep::length_secs(session.secs)
            + kills.len() as f64 * failover::length_secs(session.secs);
        eprintln!("this takes about {:.1} minutes for each variant", secs * f64::from(session.runs) / 60.0);
        let mut trials = 0;
        if !sweeps.is_empty() {
            trials += session.run::<Sweep>(&sweeps, failures)?;
        }
        if !kills.is_empty() {
            trials += session.run::<Failover>(&kills, failures)?;
        }
        Ok(trials)
    })
}

/// A folder for logs, in this one.
pub(crate) fn log_folder(folder: &Path) -> Result<TempDir> {
    let problem = || format!("cannot write logs to {}: pass another --folder", folder.display());
    tempfile::tempdir_in(folder).with_context(problem)
}

/// The row of `bench regret` with three stages behind a server.
pub(crate) fn regret_rows() -> Vec<Row> {
    let case = |workers| Case { in_flight: 64, connections: 4, workers, sync: false, verified: false };
    vec![Row::of::<Sweep>("stages", "signserver-trial", Peer::Pipelined, Rule::SharedCores, case).with(Files::Logs)]
}

/// A case for each combination; each with at least this many connections.
fn cases(args: &Args, in_flight: &[usize], connections_min: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for &sync in &args.sync {
        for workers in args.options.workers() {
            cases.extend(in_flight.iter().map(|&in_flight| Case {
                in_flight,
                connections: (args.connections as usize).max(connections_min).min(in_flight),
                workers,
                sync: sync == Sync::Yes,
                verified: !args.unverified,
            }));
        }
    }
    cases
}

/// Arguments of the hidden `signserver-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    match experiment_of(&args.trial)?.as_str() {
        Sweep::NAME => answer::<Sweep>(&args.trial),
        Failover::NAME => answer::<Failover>(&args.trial),
        other => bail!("no experiment is called {other}"),
    }
}

/// `dapple sign` takes at most twice as many threads.
const IN_FLIGHT_MAX: i64 = 16_384;

/// The number of servers in failover.
const SERVERS: usize = 2;

#[cfg(test)]
mod args_tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Result<Args, String> {
        let cli = Cli::try_parse_from([&["signserver"][..], args].concat());
        cli.map(|cli| cli.args).map_err(|error| error.to_string())
    }

    fn cases_of(args: &[&str], in_flight: &[usize], connections_min: usize) -> Vec<(usize, usize, usize, bool)> {
        let args = parse(args).expect("it makes sense");
        let cases = cases(&args, in_flight, connections_min);
        cases.iter().map(|case| (case.in_flight, case.connections, case.workers, case.sync)).collect()
    }

    #[test]
    fn there_are_never_more_connections_than_tasks() {
        assert_eq!(cases_of(&[], &[1, 2, 8], 1), [(1, 1, 2, false), (2, 2, 2, false), (8, 4, 2, false)]);
        assert_eq!(cases_of(&["--connections", "1"], &[64], SERVERS), [(64, 2, 2, false)]);
    }

    #[test]
    fn durable_or_not_or_both() {
        assert_eq!(cases_of(&["--sync"], &[1], 1), [(1, 1, 2, true)]);
        assert_eq!(cases_of(&["--sync", "no,yes", "--workers", "1"], &[1], 1), [(1, 1, 1, false), (1, 1, 1, true)]);
        assert!(parse(&["--sync", "perhaps"]).is_err_and(|error| error.contains("no, yes")));
    }

    #[test]
    fn the_thesis_is_the_default() {
        let args = parse(&[]).expect("it makes sense");
        assert_eq!(args.in_flight, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
        assert_eq!(parse(&["--variant", "wrapped"]).map(|_| ()), Ok(()));
        for wrong in [["--in-flight", "0"], ["--in-flight", "16385"], ["--kill-in-flight", "1"], ["--connections", "0"]]
        {
            assert!(parse(&wrong).is_err_and(|error| error.contains(wrong[0])), "{wrong:?}");
        }
    }
}
