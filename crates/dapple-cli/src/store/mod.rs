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

use bytes::Bytes;
use dapple::store::{AnyEngine, OrderedTable, Store, StoreOptions, StoreUrl};

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
    match done {
        // A reader such as `head` has seen enough.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Opens the store of a command; one that reads does not make a store that is not there.
async fn open(target: &Target, may_create: bool) -> Result<Store<AnyEngine>, CommandError> {
    let url = &target.url;
    if !may_create && !url.is_there() {
        return Err(CommandError::NoStore(url.directory().to_owned()));
    }
    let mut options = StoreOptions::default();
    options.partitions = target.partitions.unwrap_or(0);
    open_url(url, options).await
}

async fn open_url(url: &StoreUrl, options: StoreOptions) -> Result<Store<AnyEngine>, CommandError> {
    Ok(Store::open(url.engine(), options).await?)
}
