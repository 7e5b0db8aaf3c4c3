//! The legs of conversations in channels of IRC. The program `sanctio` is the hub that keeps them.

#![forbid(unsafe_code)]

mod irc;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use irc::Irc;
use sanctio_legs::link;

/// Carries the conversations of a hub, the program sanctio, to channels of IRC: legs such as irc:#talk.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The server of IRC.
    #[arg(value_name = "HOST:PORT")]
    server: String,
    /// The hub.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    hub: String,
    /// A file with the token of the hub.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The name of the gateway on IRC.
    #[arg(long, value_name = "NAME", default_value = "sanctio")]
    nick: String,
}

#[dapple::main]
async fn main() -> ExitCode {
    let Args { server, hub, token_file, nick } = Args::parse();
    match link::carry(Irc { nick }, server, &hub, token_file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sanctio-irc: {failure}");
            ExitCode::FAILURE
        }
    }
}

const EXAMPLES: &str = "Examples:
  sanctio-irc 127.0.0.1:6667
  curl -X PUT --json '{\"irc:#talk\": null}' http://127.0.0.1:8086/talks/talk";
