//! `bench overload`: servers under more load than their capacity, compared.
//!
//! The measure of an overloaded server is its goodput: replies that arrive while the client still
//! wants them. The load is an open loop, like real users: they do not wait for each other, and give
//! up.

mod capacity;
mod clients;
mod closed_loop;
mod estimate;
mod experiment;
mod figures;
mod generator;
mod open_loop;
mod record;
mod recovery;
mod scenario;
mod schedule;
mod server;
mod shares;
mod tables;
mod timeline;
mod trial;

pub(crate) use server::{HyperArgs, run_hyper};

use crate::experiment::{Offer, Options, answer, experiment_of};
use anyhow::{Context, Result, bail, ensure};
use estimate::Estimate;
use experiment::{Case, Change, Connections, Kind, Overload, Shares, Sweep};
use scenario::{Question, Scenario};

/// Arguments of `bench overload`.
#[derive(clap::Args)]
#[command(mut_arg("secs", |secs| secs.default_value("5")))]
pub(crate) struct Args {
    /// The costs of requests, and the change: a cost such as 5ms, mixed (1, 5 and 50 ms),
    /// cost-change (5 ms, 20 ms, 5 ms at the same multiple), load-change (5x, then 0.9x), cost-rise
    /// (0.9x of requests that cost five times as much for a while), flood (an address that sends 5x
    /// on 1,000 connections, and one that sends 0.3x), classes (5x of health checks, and of high,
    /// normal and low class)
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WHAT,...",
        default_value = "5ms,mixed,cost-change,load-change,flood,classes"
    )]
    scenario: Vec<Scenario>,
    /// Loads, as multiples of the server's capacity; load-change, cost-rise, flood and classes have
    /// their own
    #[arg(long, value_delimiter = ',', value_name = "TIMES,...", default_value = "0.5,0.9,1.2,2,5")]
    load: Vec<f64>,
    /// The base of the multiples: each server's own capacity, or this many requests a second for
    /// all
    #[arg(long, value_name = "own|RATE", default_value = "own")]
    rate_of: RateOf,
    /// How clients use connections
    #[arg(long, default_value = "new")]
    connections: Connections,
    /// Replies that take longer are not good
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    deadline_ms: u64,
    /// Clients close the connection after this time
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    give_up_ms: u64,
    /// The length of the peak of load-change and cost-rise
    #[arg(long, value_name = "SECS", default_value_t = 10.0)]
    peak_secs: f64,
    /// Addresses of the loopback network that clients use in turn; 0 for the usual one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64_000))]
    sources: u32,
    /// The seed of the arrivals, which are the same for all servers; each repetition has others
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    options: Options,
}

/// The base of the multiples.
#[derive(Clone, Copy)]
enum RateOf {
    Own,
    Rate(f64),
}

impl std::str::FromStr for RateOf {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<RateOf> {
        match text.parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(RateOf::Rate(rate)),
            _ if text == "own" => Ok(RateOf::Own),
            _ => bail!("write own, or a number of requests a second above 0 and up to 1000000"),
        }
    }
}

/// Runs the requested trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    for load in &args.load {
        ensure!(*load > 0.0 && *load <= 100.0, "--load {load} makes no sense: pass a number above 0 and up to 100");
    }
    let peak_secs = args.peak_secs;
    ensure!(
        peak_secs > 0.0 && peak_secs <= 600.0,
        "--peak-secs {peak_secs} makes no sense: pass a number above 0 and up to 600"
    );
    let [sweeps, changes, shares] = [Question::Sweep, Question::Change, Question::Shares].map(|asks| cases(args, asks));
    let mut offered: Vec<Offer> = Vec::new();
    for (name, cases) in [(Sweep::NAME, &sweeps), (Change::NAME, &changes), (Shares::NAME, &shares)] {
        offered.extend((!cases.is_empty()).then(|| (name.to_owned(), server::PEERS)));
    }
    // A server's capacity is not measured anew in each trial.
    let notes = tempfile::tempdir().context("cannot make a temporary folder")?;
    let prepare = || Ok(notes.path().to_owned());
    args.options.run_with("overload-trial", &offered, prepare, |session, failures| {
        eprintln!("{}", Estimate::of(session, &[&sweeps, &changes, &shares]));
        let mut trials = 0;
        if !sweeps.is_empty() {
            trials += session.run::<Overload<Sweep>>(&sweeps, failures)?;
        }
        if !changes.is_empty() {
            trials += session.run::<Overload<Change>>(&changes, failures)?;
        }
        if !shares.is_empty() {
            trials += session.run::<Overload<Shares>>(&shares, failures)?;
        }
        Ok(trials)
    })
}

/// The cases of scenarios with this question.
fn cases(args: &Args, asks: Question) -> Vec<Case> {
    let loads: Vec<Option<f64>> = match asks {
        Question::Sweep => args.load.iter().copied().map(Some).collect(),
        Question::Change | Question::Shares => vec![None],
    };
    let mut cases = Vec::new();
    for &scenario in args.scenario.iter().filter(|scenario| scenario.question() == asks) {
        // A client with a thousand connections keeps them.
        let keeps = scenario.clients().iter().any(|clients| clients.connections_min > 0);
        for workers in args.options.workers() {
            cases.extend(loads.iter().map(|&load| Case {
                scenario,
                load,
                workers,
                connections: if keeps { Connections::Kept } else { args.connections },
                deadline_ms: args.deadline_ms,
                give_up_ms: args.give_up_ms,
                rate_of: match args.rate_of {
                    RateOf::Own => None,
                    RateOf::Rate(rate) => Some(rate),
                },
                peak_secs: args.peak_secs,
                sources: args.sources,
                seed: args.seed,
            }));
        }
    }
    cases
}

/// Arguments of the hidden `overload-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    match experiment_of(&args.trial)?.as_str() {
        Sweep::NAME => answer::<Overload<Sweep>>(&args.trial),
        Change::NAME => answer::<Overload<Change>>(&args.trial),
        Shares::NAME => answer::<Overload<Shares>>(&args.trial),
        other => bail!("no experiment is called {other}"),
    }
}
