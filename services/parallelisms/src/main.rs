//! Parallelisms: which Debian packages are like this one, and why.

#![forbid(unsafe_code)]

mod catalog;
mod packages;
mod pages;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::Router;
use axum::extract::{Path as PathOf, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use clap::{Parser, Subcommand};
use dapple::net::TcpListener;
use dapple::store::{AnyEngine, Error, Store, StoreOptions, StoreUrl};
use serde::Deserialize;

use catalog::Catalog;
use packages::{ListError, Packages};

/// Answers "which Debian packages are like this one?", with reasons, on a web page and as JSON.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    action: Action,
    /// The store, by engine and directory; it is made if it is not there.
    #[arg(long, global = true, value_name = "URL", default_value = "redb:parallelisms-data")]
    store: StoreUrl,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Serves the web page. An empty store gets the sample that this program brings along.
    Serve {
        /// The address of the server; with port 0 the system chooses one.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8081")]
        listen: SocketAddr,
    },
    /// Adds lists of packages to the store, while no server has it open.
    Load {
        /// Files in the format of Debian's `Packages`; `-` is standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// The reason why the program ends.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read {}: {error}", file.display())]
    List { file: PathBuf, error: ListError },
    #[error("the store {url}: {error}")]
    Store { url: StoreUrl, error: Error },
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("the server ended: {0}")]
    Serve(io::Error),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.action {
        Action::Load { files } => load(&args.store, files),
        Action::Serve { listen } => dapple::block_on(serve(&args.store, *listen)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("parallelisms: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Adds the packages of files to the store.
fn load(url: &StoreUrl, files: &[PathBuf]) -> Result<(), Problem> {
    let mut packages = Packages::new();
    for file in files {
        let progress = |count: usize| {
            if count.is_multiple_of(PROGRESS_STEP) {
                eprintln!("{}: {count} packages read", file.display());
            }
        };
        let failed = |error| Problem::List { file: file.clone(), error };
        let count = if file == Path::new("-") {
            packages::read(io::stdin().lock(), &mut packages, progress)
        } else {
            let input = File::open(file).map_err(|error| failed(error.into()))?;
            packages::read(BufReader::new(input), &mut packages, progress)
        };
        println!("{}: {} packages", file.display(), count.map_err(failed)?);
    }
    dapple::block_on(async {
        let progress = |done, total| eprintln!("{done} of {total} entries written");
        let loaded = async { catalog::load(&open(url).await?, packages, progress).await };
        let count = loaded.await.map_err(|error| Problem::Store { url: url.clone(), error })?;
        println!("{count} packages in {url}");
        Ok(())
    })
}

async fn open(url: &StoreUrl) -> Result<Store<AnyEngine>, Error> {
    Store::open(url.engine(), StoreOptions::default()).await
}

/// Serves until SIGTERM or SIGINT.
async fn serve(url: &StoreUrl, address: SocketAddr) -> Result<(), Problem> {
    // The port first: a server that cannot have it changes nothing.
    let listening = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(|error| Problem::Listen { address, error })?;
    let opened = async {
        let store = open(url).await?;
        if let Some(catalog) = Catalog::open(&store).await? {
            return Ok(catalog);
        }
        println!("the store is empty and gets the sample; `parallelisms load FILE...` adds more");
        catalog::load(&store, sample(), |_, _| {}).await?;
        Ok(Catalog::open(&store).await?.expect("the sample was loaded"))
    };
    let catalog = opened.await.map_err(|error| Problem::Store { url: url.clone(), error })?;
    println!("{} packages, at http://{address}/", catalog.len());
    // A supervisor or test that reads this line may have closed its end.
    let _ = io::stdout().flush();
    let router = Router::new()
        .route("/", get(|State(catalog): State<Catalog>| async move { pages::start(catalog.len()) }))
        .route("/like", get(form))
        .route("/like/{package}", get(like))
        .route("/category/{*category}", get(category))
        .fallback(async || pages::problem(StatusCode::NOT_FOUND, "there is no such page", false))
        .with_state(catalog);
    dapple::serve(listener, router).with_signals().await.map_err(Problem::Serve)
}

/// The sample that the program brings along.
fn sample() -> Packages {
    let mut packages = Packages::new();
    for list in SAMPLE {
        packages::read(list.as_bytes(), &mut packages, |_| {}).expect("the sample is a list of packages");
    }
    packages
}

/// The parameters of a request: `?package=NAME` from the form, and `?json`.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    package: Option<String>,
    json: Option<String>,
}

type Asked = Query<Parameters>;

async fn form(State(catalog): State<Catalog>, Query(asked): Asked) -> Response {
    match asked.package.unwrap_or_default().trim() {
        "" => pages::start(catalog.len()),
        name => Redirect::to(&format!("/like/{}", pages::encoded(name))).into_response(),
    }
}

async fn like(State(catalog): State<Catalog>, PathOf(name): PathOf<String>, Query(asked): Asked) -> Response {
    let wants_json = asked.json.is_some();
    match catalog.like(&name).await {
        Ok(Some(answer)) => pages::answer(&name, &answer, wants_json),
        Ok(None) => pages::no_package(&name, &catalog.nearest(&name), wants_json),
        Err(error) => failed(&error, wants_json),
    }
}

async fn category(State(catalog): State<Catalog>, PathOf(name): PathOf<String>, Query(asked): Asked) -> Response {
    let wants_json = asked.json.is_some();
    match catalog.members(&name).await {
        Ok(Some(members)) => pages::category(&name, &members, wants_json),
        Ok(None) => pages::problem(StatusCode::NOT_FOUND, "there is no such category", wants_json),
        Err(error) => failed(&error, wants_json),
    }
}

fn failed(error: &Error, wants_json: bool) -> Response {
    let status = match error {
        // The key of a hostile request.
        Error::NotApplied(dapple::store::Refusal::TooLong { .. }) => StatusCode::NOT_FOUND,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    pages::problem(status, &error.to_string(), wants_json)
}

const EXAMPLES: &str = "Examples:
  parallelisms serve                             with the sample, or with the lists that were loaded
  apt-cache dumpavail | parallelisms load -      all packages that apt knows
  curl 'http://127.0.0.1:8081/like/nginx?json'";
const SAMPLE: [&str; 2] = [include_str!("../sample/servers.packages"), include_str!("../sample/tools.packages")];
/// Packages between two lines of progress.
const PROGRESS_STEP: usize = 10_000;
