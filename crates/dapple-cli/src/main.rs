//! The `dapple` command.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

mod http;
mod serve;

/// Network services on every core, written as if there were one.
#[derive(Debug, Parser)]
#[command(name = "dapple", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
}

/// Exit codes: 0 when all went well, 2 for a command line that makes no sense (clap's), 1 for the rest.
fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dapple: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Warnings and errors; `DAPPLE_LOG` says otherwise. stdout is left to what a script reads.
fn log_to_stderr() {
    let level = std::env::var("DAPPLE_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::WARN);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_target(false)
        .init();
}
