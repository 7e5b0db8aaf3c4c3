//! Search over partitions on several hosts, with answers from those that came in time.

#![forbid(unsafe_code)]

mod front;
mod index;
mod pages;
mod words;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand};
use dapple::net::TcpListener;
use dapple::signal::{SIGINT, SIGTERM, signal};
use dapple::stage::Stage;
use dapple::stage::remote::{Host, RemoteError};
use dapple::store::{AnyEngine, Error, Store, StoreOptions, StoreUrl};
use front::{Front, Options};
use futures_util::future::select;
use index::{Index, Query};

/// A word index in partitions on several hosts. A query gets an answer from the partitions that answer in time.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Replaces the documents of one partition, while no program has its store open.
    Load {
        /// The partition and their number: 1/4 gets each fourth document, from the first one on.
        #[arg(long, value_name = "I/N", default_value = "1/1")]
        part: Part,
        /// The store, by engine and directory; it is made if it is not there.
        #[arg(long, value_name = "URL", default_value = "redb:search-data")]
        store: StoreUrl,
        /// Text files and folders with *.md and *.txt, in the same order for all partitions.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Serves one partition to fronts.
    Part {
        /// The address of the partition; with port 0 the system chooses one. For trusted networks only.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7101")]
        listen: SocketAddr,
        /// The store that was loaded.
        #[arg(long, value_name = "URL", default_value = "redb:search-data")]
        store: StoreUrl,
    },
    /// Serves the web page, and asks the partitions.
    Front {
        /// The address of the web page; with port 0 the system chooses one.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8083")]
        listen: SocketAddr,
        /// The partitions.
        #[arg(long, required = true, value_delimiter = ',', value_name = "HOST:PORT,...")]
        parts: Vec<String>,
        /// How long a query may take, milliseconds; the answer has what came by then.
        #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=60_000))]
        limit_ms: u64,
        /// The least fraction of the partitions for an answer, 0 to 1; below it, the reply is 503.
        #[arg(long, value_name = "FRACTION", default_value_t = 0.01, value_parser = fraction)]
        harvest_min: f64,
        /// How long whole answers are kept for the next query with the same words, seconds; 0: not at all.
        #[arg(long, value_name = "S", default_value_t = 60)]
        cache_s: u64,
    },
}

/// Partition `index` of `count`, from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    index: usize,
    count: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index @ 1.., count)) if index <= count => Ok(Part { index: index - 1, count }),
            _ => Err("a partition is I/N, such as 1/4 for the first of four".to_owned()),
        }
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

/// The reason why the program ends.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("the store {url}: {error}")]
    Store { url: StoreUrl, error: Error },
    #[error("the store {0} has no documents: `search load` fills it")]
    Empty(StoreUrl),
    #[error(transparent)]
    Parts(#[from] RemoteError),
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the server ended: {0}")]
    Serve(io::Error),
}

fn main() -> ExitCode {
    let result = match Args::parse().action {
        Action::Load { part, store, paths } => load(part, &store, &paths),
        Action::Part { listen, store } => dapple::block_on(serve_part(listen, &store)),
        Action::Front { listen, parts, limit_ms, harvest_min, cache_s } => {
            let [limit, cached_for] = [Duration::from_millis(limit_ms), Duration::from_secs(cache_s)];
            dapple::block_on(serve_front(listen, Options { parts, limit, harvest_min, cached_for }))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("search: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces the documents of a partition by its share of those in the paths.
fn load(part: Part, url: &StoreUrl, paths: &[PathBuf]) -> Result<(), Problem> {
    let mut documents = Vec::new();
    for path in paths {
        words::read(path, &mut documents).map_err(|error| Problem::Read { path: path.clone(), error })?;
    }
    let all = documents.len();
    let own = documents.into_iter().skip(part.index).step_by(part.count).collect();
    let loaded = dapple::block_on(async { index::load(&open(url).await?, own).await });
    let count = loaded.map_err(|error| Problem::Store { url: url.clone(), error })?;
    println!("{count} of {all} documents in {url}");
    Ok(())
}

async fn open(url: &StoreUrl) -> Result<Store<AnyEngine>, Error> {
    Store::open(url.engine(), StoreOptions::default()).await
}

/// The listener and its address.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Problem> {
    let listening = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    listening.map(|(address, listener)| (listener, address)).map_err(|error| Problem::Listen { address, error })
}

/// Serves a partition until SIGTERM or SIGINT.
async fn serve_part(address: SocketAddr, url: &StoreUrl) -> Result<(), Problem> {
    let (listener, address) = listen(address)?;
    let failed = |error| Problem::Store { url: url.clone(), error };
    let opened = Index::open(&open(url).await.map_err(failed)?).await.map_err(failed)?;
    let index = opened.ok_or_else(|| Problem::Empty(url.clone()))?;
    let len = index.len();
    let stage =
        Stage::builder("search").queue_len_max(QUEUE_LEN_MAX).width(WIDTH).color_each().wrap_fn(move |query: Query| {
            let index = index.clone();
            async move { index.search(query).await }
        });
    let host = Host::builder().register_stage("search", stage).build();
    let stopper = host.stopper();
    let signals = [SIGTERM, SIGINT].map(signal);
    let serving = dapple::spawn(host.serve(listener));
    say(&format!("{len} documents at {address}"));
    let [terminate, interrupt] = signals;
    let (mut terminate, mut interrupt) = (terminate.map_err(Problem::Serve)?, interrupt.map_err(Problem::Serve)?);
    select(Box::pin(terminate.recv()), Box::pin(interrupt.recv())).await;
    stopper.stop();
    let ended = serving.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    ended.map(drop).map_err(Problem::Serve)
}

/// Serves the web page until SIGTERM or SIGINT.
async fn serve_front(address: SocketAddr, options: Options) -> Result<(), Problem> {
    let (listener, address) = listen(address)?;
    let limit = options.limit;
    let front = Front::new(options)?;
    say(&format!("search at http://{address}/"));
    // A query may take as long as its limit says while a partition does not answer.
    let server = dapple::serve(listener, front::router(front)).target_delay(limit + Duration::from_secs(1));
    server.with_signals().await.map_err(Problem::Serve)
}

fn say(line: &str) {
    println!("{line}");
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
}

/// Queries that one partition works on at the same time, and that wait.
const WIDTH: usize = 8;
const QUEUE_LEN_MAX: usize = 200;
const EXAMPLES: &str = "Examples:
  search load --part 1/2 --store redb:one docs     and 2/2 for redb:two
  search part --store redb:one --listen 127.0.0.1:7101
  search front --parts 127.0.0.1:7101,127.0.0.1:7102
  curl 'http://127.0.0.1:8083/search?q=color+worker&json'";
