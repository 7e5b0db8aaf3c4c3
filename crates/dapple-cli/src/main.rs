//! The `dapple` command.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use dapple::stage::remote::HostError;
use tracing::warn;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod cluster;
mod config;
#[cfg(feature = "files")]
mod files;
mod http;
mod insight;
mod lru;
#[cfg(feature = "files")]
mod mount;
mod observe;
mod proxy;
mod serve;
mod server;
mod stage_host;
mod store;

/// Network services on every core, written as if there were one.
#[derive(Debug, Parser)]
#[command(name = "dapple", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Proxy(Box<proxy::Args>),
    StageHost(Box<stage_host::Args>),
    Sign(Box<dapple_sign::Args>),
    SignClient(Box<dapple_sign::ClientArgs>),
    Store(Box<store::Args>),
    Host(Box<cluster::HostArgs>),
    Cluster(Box<cluster::ClusterArgs>),
    #[cfg(feature = "files")]
    Files(Box<files::Args>),
    #[cfg(feature = "files")]
    Mount(Box<mount::Args>),
    #[cfg(feature = "files")]
    Umount(Box<mount::UmountArgs>),
    Record(Box<insight::RecordArgs>),
    Report(Box<insight::ReportArgs>),
    #[cfg(feature = "top")]
    Top(Box<insight::TopArgs>),
}

/// Exit codes: 0 for success, 2 for a command line (clap's code) or a configuration that makes no
/// sense, 1 for other errors.
fn main() -> ExitCode {
    let loaded = match config::load(Cli::command(), std::env::args_os().collect(), std::env::vars_os()) {
        Ok(loaded) => loaded,
        Err(problems) => return fail(&problems, EXIT_MISUSE),
    };
    let cli = Cli::from_arg_matches(&loaded.matches).unwrap_or_else(|error| error.exit());
    log_to_stderr();
    for variable in &loaded.unknown_variables {
        warn!(variable, "this variable matches no option and has no effect; `--help` lists all options");
    }
    match &cli.command {
        Command::Serve(args) => match serve::run(args, &loaded) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error @ serve::ServeError::Config(_)) => fail(&error, EXIT_MISUSE),
            Err(error) => fail(&error, 1),
        },
        Command::Proxy(args) => match proxy::run(args, &loaded) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        Command::StageHost(args) => match stage_host::run(args) {
            Ok(code) => code,
            Err(error @ HostError::Options(_)) => fail(&error, EXIT_MISUSE),
            Err(error) => fail(&error, 1),
        },
        Command::Sign(args) => match dapple_sign::run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        Command::SignClient(args) => match dapple_sign::run_client(args) {
            Ok(code) => code,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        Command::Store(args) => match store::run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        Command::Host(args) => match cluster::run_host(args, &loaded) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        Command::Cluster(args) => match cluster::run_cluster(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        #[cfg(feature = "files")]
        Command::Files(args) => match files::run(args, &loaded) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        #[cfg(feature = "files")]
        Command::Mount(args) => match mount::run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
        },
        #[cfg(feature = "files")]
        Command::Umount(args) => match mount::umount(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Command::Record(args) => ended(insight::record(args)),
        Command::Report(args) => ended(insight::report(args)),
        #[cfg(feature = "top")]
        Command::Top(args) => ended(insight::top(args)),
    }
}

fn ended(result: Result<(), insight::InsightError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, if error.is_misuse() { EXIT_MISUSE } else { 1 }),
    }
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("dapple: {error}");
    ExitCode::from(code)
}

/// Logs warnings and errors to stderr, unless `DAPPLE_LOG` says otherwise. stdout is left to output
/// for scripts. Libraries that report faulty input of clients log from `debug` on; otherwise any
/// client could fill the log.
fn log_to_stderr() {
    let level = std::env::var("DAPPLE_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::WARN);
    let of_libraries = if level >= LevelFilter::DEBUG { level } else { level.min(LevelFilter::ERROR) };
    let targets = LIBRARIES.map(|library| (library, of_libraries));
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_target(false)
        .finish()
        .with(Targets::new().with_default(level).with_targets(targets))
        .init();
}

const LIBRARIES: [&str; 7] = ["h2", "h3", "hyper", "quinn", "quinn_proto", "quinn_udp", "rustls"];

/// The exit code for a command line, or a configuration, that makes no sense.
const EXIT_MISUSE: u8 = 2;
