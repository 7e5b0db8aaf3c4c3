//! Several pipelines after one queue: *replicate* (Gribble, 4.4.4, Figure 27).
//!
//! Each replica computes both digests by itself; there is one log, so that it stays in order.
//! Replicas in other processes are in [`super::hosts`].

use std::convert::Infallible;
use std::future::Future;

use dapple::stage::graph::Graph;
use dapple::stage::{PipelineError, Replicated, Replication, Stage, StageError};

use super::pipelined::{Pipelined, around, log_stage};
use super::{Failure, Parts, Signed, Task};
use crate::args::Args;
use crate::log::LogError;

/// All replicas. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    front: Replicated<Task, Signed, Error>,
    pipelines: Vec<Pipelined>,
}

type Error = PipelineError<Infallible, PipelineError<LogError, StageError<Infallible>>>;

impl Replicas {
    pub(super) fn new(args: &Args, parts: &Parts) -> Replicas {
        let log = log_stage(args.batch(), parts.log.clone());
        let pipelines: Vec<Pipelined> = (0..args.replicas_max())
            .map(|replica| {
                let first = Stage::builder(format!("first digest {replica}")).queue_len_max(args.width());
                around(first, &log, format!("second digest {replica}"), &parts.secrets)
            })
            .collect();
        let replication = Replication::between(args.replicas()..=args.replicas_max());
        let builder = Stage::builder("sign").queue_len_max(args.queue()).width(args.width()).shed();
        let made = pipelines.clone();
        let front = builder.replicate(replication, move |replica| made[replica % made.len()].clone());
        Replicas { front, pipelines }
    }

    pub(super) fn sign(&self, task: Task) -> impl Future<Output = Result<Signed, Failure>> + Send + use<> {
        let front = self.front.clone();
        async move { Ok(front.ask(task).await?) }
    }

    pub(super) fn draw(&self, graph: &Graph) {
        graph.add(&self.front);
        for pipeline in &self.pipelines {
            graph.link(&self.front, pipeline, "replica");
        }
    }
}
