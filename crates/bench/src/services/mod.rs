//! `bench services`: the figures of the programs in `services/`.

mod search;
mod webtable;

use crate::machine::Guard;
use crate::output::Output;
use crate::words::check_secs;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Arguments of `bench services`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// The services; all if none is named
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<Service>,
    #[command(flatten)]
    search: search::Args,
    #[command(flatten)]
    webtable: webtable::Args,
    /// Repetitions
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds between two events of a run of `search`, which has six; seconds of a run of `webtable`
    #[arg(long, default_value_t = 4.0)]
    secs: f64,
}

/// A service with figures.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Service {
    /// Harvest and yield over time, while partitions are killed and come back
    Search,
    /// Requests a second by the number of front ends and of hosts of the table
    Webtable,
}

/// Runs all repetitions and reports them; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    check_secs(args.secs, 600.0)?;
    let is_wanted = |service| args.only.is_empty() || args.only.contains(&service);
    let wanted: Vec<&Service> = Service::value_variants().iter().filter(|service| is_wanted(**service)).collect();
    for service in &wanted {
        program(service.name())?;
    }
    let about = args.output.begin()?;
    for service in wanted {
        match service {
            Service::Search => search::run(args, &about)?,
            Service::Webtable => webtable::run(args, &about)?,
        }
    }
    Ok(())
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Search => "search",
            Service::Webtable => "webtable",
        }
    }
}

/// The path of a service, which was built next to this program.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let program = own.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    bail!("{} is not there: build it with `cargo build {profile}-p {name}`", program.display())
}

/// Starts a service and reads the address from the end of its first line.
fn started(name: &str, args: &[&str]) -> Result<(Guard, SocketAddr)> {
    let mut process = Guard::start(name, Command::new(program(name)?).args(args).stdout(Stdio::piped()))?;
    let mut line = String::new();
    let output = process.take_output().context("its output is piped")?;
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim_end().trim_end_matches('/').rsplit([' ', '/']).next();
    let address = address.and_then(|address| address.parse().ok());
    let address = address.with_context(|| format!("{name} {args:?} did not say where it listens: {line:?}"))?;
    Ok((process, address))
}
