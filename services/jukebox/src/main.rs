//! Streams of music: files that are chosen by rules, one after the other, for any player that talks HTTP.

#![forbid(unsafe_code)]

mod http;
mod library;
mod rules;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::serve::bearer::{Token, TokenError};
use dapple::store::{Error, Store, StoreOptions, StoreUrl, TableOptions};
use dapple::sync::Semaphore;
use http::Jukebox;
use library::Library;

/// Plays the files of a folder as streams, which are chosen by rules.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// The folder with files of music, *.mp3.
    #[arg(long, value_name = "DIR")]
    music: PathBuf,
    /// The address of the server; with port 0 the system chooses one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8085")]
    listen: SocketAddr,
    /// The store with the rules, by engine and directory; it is made if it is not there.
    #[arg(long, value_name = "URL", default_value = "redb:jukebox-data")]
    store: StoreUrl,
    /// A file with a token. Requests that change rules must have it in `Authorization: Bearer TOKEN`; without this option,
    /// no request changes them.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The most streams and files that are sent at the same time. Further requests get 503.
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    sending_max: u16,
}

/// The reason why the program ends.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot read the folder {}: {error}", folder.display())]
    Music { folder: PathBuf, error: io::Error },
    #[error(transparent)]
    Token(#[from] TokenError),
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
            eprintln!("jukebox: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT.
async fn serve(Args { music, listen, store: url, token_file, sending_max }: Args) -> Result<(), Failure> {
    let token = token_file.map(Token::from_file).transpose()?;
    let library = Library::new(&music);
    let count = library.tracks().await.map_err(|error| Failure::Music { folder: music, error })?.all.len();
    let listening = TcpListener::bind(listen).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(|error| Failure::Listen { address: listen, error })?;
    let opened = async {
        let store = Store::open(url.engine(), StoreOptions::default()).await?;
        store.ordered_table_or_create("streams", TableOptions::default()).await
    };
    let streams = opened.await.map_err(|error| Failure::Store { url: url.clone(), error })?;
    println!("{count} tracks, listening on {address}");
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let sending = Arc::new(Semaphore::new(sending_max.into()));
    let router = http::router(Jukebox { library, streams, token, sending });
    let server = dapple::serve(listener, router).body_max_bytes(RULES_LEN_MAX).pause_timeout(PAUSE_MAX);
    let server = server.target_delay(TARGET_DELAY);
    server.with_signals().await.map_err(Failure::Serve)
}

/// A change waits for the disk, and players do not come again after a refusal.
const TARGET_DELAY: Duration = Duration::from_secs(2);
/// How long a listener may pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
const RULES_LEN_MAX: u64 = 16 << 10;
const EXAMPLES: &str = "Examples:
  jukebox --music ~/Music --token-file token
  curl -T - -H \"Authorization: Bearer $(cat token)\" http://127.0.0.1:8085/streams/evening <<< '{\"with\": [\"jazz\"]}'
  mpg123 http://127.0.0.1:8085/streams/evening.mp3
  mpg123 -@ http://127.0.0.1:8085/streams/evening.m3u";
