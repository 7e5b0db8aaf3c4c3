//! `bench proxy`: the papers' argument for colors, measured. One process on all cores has one
//! cache; as many processes as cores have as many caches, each with a share of the memory, and each
//! fetches for itself.

mod experiment;
mod objects;
mod origin;
mod trial;

use crate::experiment::{Experiment, Options, Peer, answer};
use crate::regret::{Files, Row, Rule};
use anyhow::Result;
use experiment::{Case, Shared};
use objects::Objects;
use tempfile::TempDir;

/// Arguments of `bench proxy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Clients
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Memory for all caches together, in MiB; the requested objects take some 70
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "8,16,32")]
    cache_mb: Vec<u64>,
    #[command(flatten)]
    options: Options,
}

/// Runs the trials and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut cases = Vec::new();
    for &cache_mb in &args.cache_mb {
        for workers in args.options.workers() {
            cases.push(Case { connections: args.connections as usize, cache_mb, workers });
        }
    }
    let mut folder = None;
    let prepare = || {
        let made = write_objects()?;
        let path = made.path().to_owned();
        folder = Some(made);
        Ok(path)
    };
    let offered = [(Shared::NAME.to_owned(), Shared::PEERS)];
    args.options.run_with("proxy-trial", &offered, prepare, |session, failures| session.run::<Shared>(&cases, failures))
}

/// Writes the origin's files.
pub(crate) fn write_objects() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    Objects::write(folder.path())?;
    Ok(folder)
}

/// The row of `bench regret`.
pub(crate) fn regret_rows() -> Vec<Row> {
    let case = |workers| Case { connections: 64, cache_mb: 32, workers };
    vec![Row::of::<Shared>("proxy", "proxy-trial", Peer::Dapple, Rule::SharedCores, case).with(Files::Objects)]
}

/// Arguments of the hidden `proxy-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    /// The trial, as JSON
    trial: String,
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    answer::<Shared>(&args.trial)
}
