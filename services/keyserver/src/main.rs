//! A key server for OpenPGP, to which gpg talks by HKP.

#![forbid(unsafe_code)]

mod hkp;
mod keys;
mod registry;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::store::{Error, StoreUrl};
use registry::Registry;

/// Keeps OpenPGP keys, and answers gpg by HKP.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The address of the server; with port 0 the system chooses one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:11371")]
    listen: SocketAddr,
    /// The store, by engine and directory; it is made if it is not there.
    #[arg(long, value_name = "URL", default_value = "redb:keyserver-data")]
    store: StoreUrl,
}

/// The reason why the program ends.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the store {url}: {error}")]
    Store { url: StoreUrl, error: Error },
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the server ended: {0}")]
    Serve(io::Error),
}

#[dapple::main]
async fn main() -> ExitCode {
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("keyserver: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT.
async fn serve(Args { listen, store }: Args) -> Result<(), Failure> {
    // The port first: a server that cannot have it changes nothing.
    let listening = TcpListener::bind(listen).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(|error| Failure::Listen { address: listen, error })?;
    let opened = async {
        let registry = Registry::open(store.engine()).await?;
        Ok((registry.count().await?, registry))
    };
    let (count, registry) = opened.await.map_err(|error| Failure::Store { url: store.clone(), error })?;
    println!("{count} keys, at hkp://{address} and http://{address}/");
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let server = dapple::serve(listener, hkp::router(registry)).body_max_bytes(BODY_LEN_MAX).target_delay(TARGET_DELAY);
    server.with_signals().await.map_err(Failure::Serve)
}

/// gpg does not come back after a refusal, but it waits.
const TARGET_DELAY: Duration = Duration::from_secs(5);
/// A key of the largest length, armored and encoded as a form, has about 200 KB.
const BODY_LEN_MAX: u64 = 1 << 20;
const EXAMPLES: &str = "Examples:
  gpg --keyserver hkp://127.0.0.1:11371 --send-keys FINGERPRINT
  gpg --keyserver hkp://127.0.0.1:11371 --search-keys ann@example.org
  gpg --keyserver hkp://127.0.0.1:11371 --recv-keys FINGERPRINT";
