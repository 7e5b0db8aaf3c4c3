//! Three stages, one after another: *pipeline* (Gribble, 4.4.3, Figure 25).
//!
//! Each digest has a color, so that two workers compute both at the same time. The log serves one
//! call at a time, which takes all waiting tasks up to a batch: one write and one fsync for all of
//! them. Only the first stage refuses; the others make earlier stages wait.

use std::convert::Infallible;

use bytes::Bytes;
use dapple::Color;
use dapple::blocking::spawn_blocking;
use dapple::stage::{Pipeline, Stage, StageBuilder};

use super::{Parts, Signed, Task};
use crate::args::Args;
use crate::digest::Secrets;
use crate::frame::Digest;
use crate::log::{Entry, Log, LogError};

/// The three stages.
pub(crate) type Pipelined =
    Pipeline<Task, Hashed, Infallible, Pipeline<Hashed, Logged, LogError, Stage<Logged, Signed>>>;

/// A task with its first digest.
#[derive(Debug)]
pub(crate) struct Hashed {
    entry: Entry,
    body: Bytes,
}

/// A task that is in the log.
#[derive(Debug)]
pub(crate) struct Logged {
    sequence: u64,
    first: Digest,
    body: Bytes,
}

pub(super) fn pipeline(args: &Args, parts: &Parts) -> Pipelined {
    let first = Stage::builder("first digest").queue_len_max(args.queue()).shed();
    around(first, &log_stage(args.batch(), parts.log.clone()), "second digest", &parts.secrets)
}

/// The stage that logs, in the order of its queue.
pub(crate) fn log_stage(batch: usize, log: Log) -> Stage<Hashed, Logged, LogError> {
    let builder = Stage::builder("log").queue_len_max(BETWEEN_LEN_MAX.max(batch)).width(1).color(Color::new());
    builder.wrap_cohorts(batch, move |tasks: Vec<Hashed>| {
        let (log, entries) = (log.clone(), tasks.iter().map(|task| task.entry).collect::<Vec<_>>());
        async move {
            let results = match spawn_blocking(move || log.append_all(&entries)).await {
                Ok(results) => results,
                Err(error) => vec![Err(LogError::Broken(error.to_string())); tasks.len()],
            };
            let logged = |(task, result): (Hashed, Result<u64, LogError>)| {
                result.map(|sequence| Logged { sequence, first: task.entry.digest, body: task.body })
            };
            tasks.into_iter().zip(results).map(logged).collect()
        }
    })
}

/// The two digest stages around the log stage.
pub(crate) fn around(
    first: StageBuilder<Task>,
    log: &Stage<Hashed, Logged, LogError>,
    second: impl Into<String>,
    secrets: &Secrets,
) -> Pipelined {
    let (of_first, of_second) = (secrets.clone(), secrets.clone());
    let first = first.width(1).color(Color::new()).wrap_sync(move |task: Task| {
        let entry = Entry { id: task.id, digest: of_first.first(&task.body) };
        Hashed { entry, body: task.body }
    });
    let second = Stage::builder(second).queue_len_max(BETWEEN_LEN_MAX).width(1).color(Color::new());
    let second = second.wrap_sync(move |task: Logged| Signed {
        sequence: task.sequence,
        first: task.first,
        second: of_second.second(&task.body),
    });
    first.then(log.clone().then(second))
}

/// The most tasks that wait between two stages; more wait in the stage before.
const BETWEEN_LEN_MAX: usize = 256;
