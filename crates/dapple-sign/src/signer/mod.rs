//! The four structures of the service (Gribble, 4.4): each takes a task and returns both digests.
//!
//! A task is either refused at the entrance or served to its end: once it has been logged, no later
//! stage refuses it, so the log holds exactly the acknowledged tasks.

mod body;
mod failure;
mod hosts;
mod pipelined;
mod replicated;
mod threaded;
mod wrapped;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use dapple::stage::Stage;
use dapple::stage::graph::Graph;
use dapple::stage::remote::Discovery;
use serde::{Deserialize, Serialize};

pub(super) use self::failure::{Failure, Kind};
use self::hosts::Hosts;
pub(super) use self::pipelined::{Hashed, Logged, Pipelined, around, log_stage};
use self::replicated::Replicas;
use self::threaded::Threads;
use super::args::{Args, Variant};
use super::digest::Secrets;
use super::frame::Signed;
use super::log::{Log, LogError};

/// A task to be signed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The number that its client gave it.
    pub(super) id: u64,
    #[serde(with = "body")]
    pub(super) body: Bytes,
}

/// The parts that all variants share.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) secrets: Secrets,
    pub(super) log: Log,
}

/// Where the work is done.
#[derive(Debug)]
pub(super) enum Backing {
    /// In this process.
    Here(Parts),
    /// In the stage [`STAGE`] of other processes.
    Hosts(Discovery),
}

/// One of the variants. Clones share it.
#[derive(Clone, Debug)]
pub(super) enum Signer {
    Threaded(Threads),
    Wrapped(Stage<Task, Signed, LogError>),
    Pipelined(Pipelined),
    Replicated(Replicas),
    Hosts(Hosts),
}

/// The outcome of a task.
pub(super) type Outcome = Pin<Box<dyn Future<Output = Result<Signed, Failure>> + Send>>;

impl Signer {
    /// Creates the variant that the options ask for. Needs a runtime.
    pub(super) fn new(args: &Args, backing: Backing) -> Signer {
        let parts = match backing {
            Backing::Here(parts) => parts,
            Backing::Hosts(hosts) => return Signer::Hosts(Hosts::new(args, &hosts)),
        };
        match args.variant {
            Variant::Threaded => Signer::Threaded(Threads::new(args.threads(), parts)),
            Variant::Wrapped => Signer::Wrapped(wrapped::stage(args, parts)),
            Variant::Pipelined => Signer::Pipelined(pipelined::pipeline(args, &parts)),
            Variant::Replicated => Signer::Replicated(Replicas::new(args, &parts)),
        }
    }

    /// Accepts or refuses a task; it never waits for room. Dropping the outcome cancels a task that
    /// is not in service.
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
            Signer::Hosts(hosts) => Box::pin(hosts.sign(task)),
        }
    }

    /// The graph of stages, if the variant has any.
    pub(super) fn graph(&self) -> Option<Graph> {
        let graph = Graph::new();
        match self {
            Signer::Threaded(_) => return None,
            Signer::Wrapped(stage) => graph.add(stage),
            Signer::Pipelined(pipeline) => graph.add(pipeline),
            Signer::Replicated(replicas) => replicas.draw(&graph),
            Signer::Hosts(hosts) => hosts.draw(&graph),
        }
        Some(graph)
    }
}

/// The name of this stage at a stage host.
pub(super) const STAGE: &str = "sign";
