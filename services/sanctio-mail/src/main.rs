//! The legs of conversations by mail. The program `sanctio` is the hub that keeps them.
//!
//! smtp-proto reads the requests and the text of mails, mail-parser and mail-builder read and write mails. lettre was
//! rejected: it sends a mail in one call, and a message has to be claimed between the server's consent and the text.

#![forbid(unsafe_code)]

mod letter;
mod receive;
mod send;
mod wire;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::serve::bearer::Token;
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::task::{Group, race};
use receive::Receiver;
use sanctio_legs::hub::Hub;
use send::Sender;

/// Carries the conversations of a hub, the program sanctio, by mail: legs such as mail:ann@example.org. A member writes to
/// CONVERSATION@DOMAIN.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The domain of the conversations' addresses.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// The server that takes mails to the members, by SMTP.
    #[arg(long, value_name = "HOST:PORT")]
    relay: String,
    /// The address to which mails to the domain come, by SMTP; with port 0 the system chooses one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2525")]
    listen: SocketAddr,
    /// The hub.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8086")]
    hub: String,
    /// A file with the token of the hub.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The reason why the program ends, for its user.
type Failure = Box<dyn std::error::Error>;

#[dapple::main]
async fn main() -> ExitCode {
    match carry(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sanctio-mail: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Carries mails until SIGTERM or SIGINT.
async fn carry(Args { domain, relay, listen, hub, token_file }: Args) -> Result<(), Failure> {
    let choose = |error| format!("cannot listen on {listen}: {error}; choose another address with --listen");
    let listener = TcpListener::bind(listen).map_err(choose)?;
    let mut signals = (signal(SIGTERM)?, signal(SIGINT)?);
    let hub = Hub::new("mail", &hub, token_file.map(Token::from_file).transpose()?)?;
    let domain = domain.to_ascii_lowercase();
    println!("listening on {}", listener.local_addr()?);
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let both = Group::new();
    both.spawn(hub.clone().carry(Arc::new(Sender { relay, domain: domain.clone() }))).await;
    both.spawn(receive::serve(listener, Receiver { hub: hub.clone(), domain })).await;
    race(signals.0.recv(), signals.1.recv()).await;
    hub.ending.cancel();
    both.all_ended().await;
    Ok(())
}

const EXAMPLES: &str = "Examples:
  sanctio-mail --domain chat.example.org --relay 127.0.0.1:25 --listen 127.0.0.1:2525
  curl -X PUT --json '{\"mail:ann@example.org\": \"de\"}' http://127.0.0.1:8086/talks/talk";
