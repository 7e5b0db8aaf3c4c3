//! The web server on the table: front ends without state, over tables on other hosts.

#![forbid(unsafe_code)]

mod front;
mod handlers;
mod http;
mod message;
mod table;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dapple::net::TcpListener;
use dapple::serve::bearer::Token;
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::stage::Stage;
use dapple::stage::remote::{Host, HostLimits};
use dapple::store::StoreUrl;
use front::Front;
use futures_util::future::select;
use message::{Ask, FILE_LEN_MAX, MESSAGE_LEN_MAX};
use table::Tables;

/// A web server with its files and state in tables. Any number of front ends serve them, and any of those may die.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
enum Action {
    /// Hosts tables for front ends.
    Table {
        /// The address for front ends; with port 0 the system chooses one. For trusted networks only.
        #[arg(long, alias = "addr", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7201")]
        listen: SocketAddr,
        /// The store, by engine and directory; it is made if it is not there.
        #[arg(long, value_name = "URL", default_value = "redb:webtable-data")]
        store: StoreUrl,
    },
    /// Serves files and handlers from the tables.
    Front {
        /// The address of the web server; with port 0 the system chooses one.
        #[arg(long, alias = "addr", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8084")]
        listen: SocketAddr,
        /// The hosts of the tables; each has a part of the files. All front ends need the same ones, by the same names.
        #[arg(long, required = true, value_delimiter = ',', value_name = "HOST:PORT,...")]
        tables: Vec<String>,
        /// A file with a token. Requests that change files must have it in `Authorization: Bearer TOKEN`; without this
        /// option, the front end changes no files.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// How long a table may take to answer, milliseconds.
        #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
        limit_ms: u64,
    },
}

/// The reason why the program ends, for its user.
type Failure = Box<dyn std::error::Error>;

#[dapple::main]
async fn main() -> ExitCode {
    let ended = match Action::parse() {
        Action::Table { listen, store } => serve_table(listen, &store).await,
        Action::Front { listen, tables, token_file, limit_ms } => {
            serve_front(listen, tables, token_file, Duration::from_millis(limit_ms)).await
        }
    };
    if let Err(failure) = ended {
        eprintln!("webtable: {failure}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let choose = |error| format!("cannot listen on {address}: {error}; choose another address with --listen").into();
    TcpListener::bind(address).map_err(choose)
}

/// Hosts tables until SIGTERM or SIGINT.
async fn serve_table(address: SocketAddr, url: &StoreUrl) -> Result<(), Failure> {
    let listener = listen(address)?;
    let (tables, count) = Tables::open(url.engine()).await.map_err(|error| format!("the store {url}: {error}"))?;
    let stage = Stage::builder("table").queue_len_max(QUEUE_LEN_MAX).width(WIDTH).color_each();
    let stage = stage.wrap_fn(move |ask: Ask| tables.clone().answer(ask));
    let mut limits = HostLimits::default();
    limits.body_max_bytes = MESSAGE_LEN_MAX;
    let host = Host::builder().register_stage("table", stage).limits(limits).build();
    let (stopper, mut signals) = (host.stopper(), (signal(SIGTERM)?, signal(SIGINT)?));
    println!("table of {count} files, listening on {}", listener.local_addr()?);
    let serving = dapple::spawn(host.serve(listener));
    select(Box::pin(signals.0.recv()), Box::pin(signals.1.recv())).await;
    stopper.stop();
    serving.await??;
    Ok(())
}

/// Serves the web until SIGTERM or SIGINT.
async fn serve_front(
    address: SocketAddr,
    tables: Vec<String>,
    token_file: Option<PathBuf>,
    limit: Duration,
) -> Result<(), Failure> {
    let front = Front::new(tables, limit, token_file.map(Token::from_file).transpose()?)?;
    let listener = listen(address)?;
    // `dapple host` knows by this line that a replica is ready.
    println!("front end listening on {}", listener.local_addr()?);
    let server = dapple::serve(listener, http::router(front)).body_max_bytes(FILE_LEN_MAX as u64);
    // A change waits for the disk of its table, and longer while that is not there.
    server.target_delay(limit + Duration::from_secs(1)).with_signals().await?;
    Ok(())
}

/// Requests that one host works on at the same time, and that wait.
const WIDTH: usize = 64;
const QUEUE_LEN_MAX: usize = 1000;
const EXAMPLES: &str = "Examples:
  webtable table --store redb:web --listen 127.0.0.1:7201
  webtable front --tables 127.0.0.1:7201 --token-file token --listen 127.0.0.1:8084
  webtable front --tables 127.0.0.1:7201 --token-file token --listen 127.0.0.1:8086
  curl -T index.html -H \"Authorization: Bearer $(cat token)\" http://127.0.0.1:8084/
  curl -X PUT -H \"Authorization: Bearer $(cat token)\" http://127.0.0.1:8086/run/counter/visits
  curl -d '' http://127.0.0.1:8084/run/counter/visits";
