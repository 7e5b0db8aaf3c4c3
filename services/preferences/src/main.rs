//! A registry of users' preferences and device profiles, with versions, by JSON over HTTP.

#![forbid(unsafe_code)]

mod document;
mod http;
mod registry;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::serve::bearer::{Token, TokenError};
use dapple::store::{Error, StoreUrl};
use registry::Registry;

/// Keeps the preferences of users and the profiles of devices, as JSON documents with versions.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The address of the server; with port 0 the system chooses one. Another address than loopback needs a token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8082")]
    listen: SocketAddr,
    /// The store, by engine and directory; it is made if it is not there.
    #[arg(long, value_name = "URL", default_value = "redb:preferences-data")]
    store: StoreUrl,
    /// A file with a token, which each request must then have in `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The reason why the program ends.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{0} can be reached from other machines: give a token with --token-file, or listen on 127.0.0.1")]
    OpenToAll(SocketAddr),
    #[error("the store {url}: {error}")]
    Store { url: StoreUrl, error: Error },
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the server ended: {0}")]
    Serve(io::Error),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match dapple::block_on(serve(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("preferences: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT.
async fn serve(args: &Args) -> Result<(), Failure> {
    let token = args.token_file.as_ref().map(Token::from_file).transpose()?;
    let address = args.listen;
    if token.is_none() && !address.ip().is_loopback() {
        return Err(Failure::OpenToAll(address));
    }
    // The port first: a server that cannot have it changes nothing.
    let listening = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(|error| Failure::Listen { address, error })?;
    let opened = Registry::open(args.store.engine()).await;
    let registry = opened.map_err(|error| Failure::Store { url: args.store.clone(), error })?;
    println!("preferences at http://{address}/");
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let server = dapple::serve(listener, http::router(registry, token)).body_max_bytes(http::LEN_MAX as u64);
    let server = server.target_delay(TARGET_DELAY);
    server.with_signals().await.map_err(Failure::Serve)
}

/// A change waits for the disk. Clients that would wait longer are refused.
const TARGET_DELAY: Duration = Duration::from_secs(2);
const EXAMPLES: &str = "Examples:
  curl -X PUT -H 'If-None-Match: *' -d '{\"width\": 320, \"height\": 240}' http://127.0.0.1:8082/devices/phone
  curl -X PATCH -d '{\"language\": \"de\"}' http://127.0.0.1:8082/users/ann
  curl -i http://127.0.0.1:8082/users/ann/for/phone";
