//! `dapple store`: tables on disk, from the command line.
//!
//! Its tables hold bytes: `OrderedTable<Bytes, Bytes>`. A program that opens them with these types
//! shares them.

mod args;
mod bench;
mod bulk;
mod commands;
mod error;
mod progress;
mod server;
mod text;
mod whole;

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dapple::blocking::spawn_blocking;
use dapple::store::{AnyEngine, Error, OrderedTable, Refusal, Store, StoreOptions, StoreUrl};

pub(crate) use args::Args;
use args::Target;
use error::CommandError;

type TextTable = OrderedTable<Bytes, Bytes, AnyEngine>;

/// Runs one command.
///
/// # Errors
/// See [`CommandError`].
pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let mut builder = dapple::builder();
    if let args::Action::Serve(args::ServeArgs { workers: Some(workers), .. }) = &args.action {
        builder = builder.workers(usize::from(*workers));
    }
    let runtime = builder.build().map_err(CommandError::Runtime)?;
    let done = runtime.block_on(commands::run(&args.action));
    let opened = mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.into_iter().for_each(|store| runtime.block_on(store.close()));
    match done {
        // A reader such as `head` has seen enough.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// The stores that this process has opened, to be closed at its end: the next command must not wait until a lease is over.
static OPENED: Mutex<Vec<Store<AnyEngine>>> = Mutex::new(Vec::new());

/// A killed owner's lease in etcd lasts ten seconds.
const IN_USE_LIMIT: Duration = Duration::from_secs(15);

/// Opens the store of a command; one that reads does not make a store that is not there.
async fn open(target: &Target, may_create: bool) -> Result<Store<AnyEngine>, CommandError> {
    let url = &target.url;
    if !may_create && !is_there(url).await? {
        return Err(CommandError::NoStore(place(url)));
    }
    let mut options = StoreOptions::default();
    options.partitions = target.partitions.unwrap_or(0);
    open_url(url, options).await
}

async fn open_url(url: &StoreUrl, mut options: StoreOptions) -> Result<Store<AnyEngine>, CommandError> {
    if url.directory().is_none() {
        options.in_use_limit = IN_USE_LIMIT;
    }
    let store = Store::open(url.engine(), options).await?;
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
    Ok(store)
}

async fn is_there(url: &StoreUrl) -> Result<bool, CommandError> {
    let url = url.clone();
    let found = spawn_blocking(move || url.is_there()).await.map_err(CommandError::runtime)?;
    found.map_err(|failure| Error::from(Refusal::Engine(failure)).into())
}

/// Where a store is, for messages.
fn place(url: &StoreUrl) -> String {
    url.directory().map_or_else(|| url.to_string(), |directory| directory.display().to_string())
}
