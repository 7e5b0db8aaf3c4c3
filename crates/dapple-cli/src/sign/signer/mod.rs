//! The four structures of the service (Gribble, 4.4): they take a task and give both digests.
//!
//! A task is refused at the door or served to its end: once it has been logged, nothing behind it refuses, so that what is in the log
//! is what was acknowledged.

mod failure;
mod pipelined;
mod replicated;
mod threaded;
mod wrapped;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use dapple::stage::Stage;
use dapple::stage::graph::Graph;

pub(super) use self::failure::{Failure, Kind};
use self::pipelined::Pipelined;
use self::replicated::Replicas;
use self::threaded::Threads;
use super::args::{Args, Variant};
use super::digest::{Digest, Secrets};
use super::log::{Log, LogError};

/// To be signed.
#[derive(Debug)]
pub(super) struct Task {
    /// The number that its client gave it.
    pub(super) id: u64,
    pub(super) body: Bytes,
}

/// Signed, and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signed {
    /// Its place in the log.
    pub(super) sequence: u64,
    pub(super) first: Digest,
    pub(super) second: Digest,
}

/// What all variants are made of.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) secrets: Secrets,
    pub(super) log: Log,
}

/// One of the variants. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) enum Signer {
    Threaded(Threads),
    Wrapped(Stage<Task, Signed, LogError>),
    Pipelined(Pipelined),
    Replicated(Replicas),
}

/// What becomes of a task.
pub(super) type Outcome = Pin<Box<dyn Future<Output = Result<Signed, Failure>> + Send>>;

impl Signer {
    /// The one that was asked for. Needs a runtime.
    pub(super) fn new(args: &Args, parts: Parts) -> Signer {
        match args.variant {
            Variant::Threaded => Signer::Threaded(Threads::new(args.threads, parts)),
            Variant::Wrapped => Signer::Wrapped(wrapped::stage(args, parts)),
            Variant::Pipelined => Signer::Pipelined(pipelined::pipeline(args, &parts)),
            Variant::Replicated => Signer::Replicated(Replicas::new(args, &parts)),
        }
    }

    /// Sends a task in, or refuses it; it never waits for room. Dropped, the outcome gives the task up where it is not in service.
    pub(super) fn sign(&self, task: Task) -> Outcome {
        match self {
            Signer::Threaded(threads) => Box::pin(threads.sign(task)),
            Signer::Wrapped(stage) => {
                let asked = stage.ask(task);
                Box::pin(async move { Ok(asked.await?) })
            }
            Signer::Pipelined(pipeline) => {
                let pipeline = pipeline.clone();
                Box::pin(async move { Ok(pipeline.ask(task).await?) })
            }
            Signer::Replicated(replicas) => Box::pin(replicas.sign(task)),
        }
    }

    /// The stages; none where there are none.
    pub(super) fn graph(&self) -> Option<Graph> {
        let graph = Graph::new();
        match self {
            Signer::Threaded(_) => return None,
            Signer::Wrapped(stage) => graph.add(stage),
            Signer::Pipelined(pipeline) => graph.add(pipeline),
            Signer::Replicated(replicas) => replicas.draw(&graph),
        }
        Some(graph)
    }
}
