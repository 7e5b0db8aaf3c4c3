//! The service as a stage of `dapple stage-host`: it receives tasks, returns both digests, and
//! records each task in this host's log.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dapple::blocking::spawn_blocking;
use dapple::stage::remote::{HostBuilder, HostError};
use dapple::stage::{BoxError, PipelineError, Reason, Refused, Stage, StageError};
use dapple::sync::{OnceCell, watch};
use dapple::time::sleep;
use dapple_serve::command_line::number;

use super::digest::{Secrets, warn_of_published};
use super::frame::Signed;
use super::log::{Log, LogError, OpenError};
use super::signer::{Failure, Hashed, Logged, Pipelined, STAGE, Task, around, log_stage};

/// The options of `dapple stage-host` for the stage `sign`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of the stage `sign`")]
pub struct HostArgs {
    /// Append 128 bytes to this file for each task; an existing log is continued. Without it there
    /// is no stage `sign`
    #[arg(long, value_name = "FILE")]
    sign_log: Option<PathBuf>,

    /// Answer only when the record is on the disk (one fsync for all waiting tasks)
    #[arg(long)]
    sign_sync: bool,

    /// The largest size of the log, in MB; beyond it this host takes no tasks
    #[arg(long, value_name = "N", default_value_t = 10_240, value_parser = number::<u64>(0..=1_048_576))]
    sign_log_max_mb: u64,

    /// A file with the bytes of the first secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    sign_first_secret: Option<PathBuf>,

    /// A file with the bytes of the second secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    sign_second_secret: Option<PathBuf>,
}

/// The source of the log.
enum Source {
    Open(Log),
    /// The process that is being replaced, as soon as it has ended.
    Predecessor(PathBuf),
}

type LogStage = Stage<Hashed, Logged, LogError>;

impl HostArgs {
    /// Registers the stage, with its log opened and locked, if it should run: if `stages` names it,
    /// or is empty and a log is given. Blocks.
    ///
    /// # Errors
    ///
    /// There is no log, or it cannot be opened; a secret cannot be read; options are for a stage
    /// that does not run.
    pub fn register(&self, host: HostBuilder, stages: &[String], take_over: bool) -> Result<HostBuilder, HostError> {
        let is_named = stages.iter().any(|name| name == STAGE);
        if !is_named && (!stages.is_empty() || self.sign_log.is_none()) {
            return match self.given() {
                Some(option) if stages.is_empty() => {
                    Err(HostError::Options(format!("{option} needs --sign-log FILE, the log of the stage `{STAGE}`")))
                }
                Some(option) => Err(HostError::Options(format!(
                    "{option} is for the stage `{STAGE}`, which does not run; add --stage {STAGE}"
                ))),
                None => Ok(host),
            };
        }
        let Some(path) = &self.sign_log else {
            return Err(HostError::Options(format!(
                "the stage `{STAGE}` needs a log: give --sign-log FILE, to which each task appends a record"
            )));
        };
        let (first, second) = (self.sign_first_secret.as_deref(), self.sign_second_secret.as_deref());
        let secrets = Secrets::read(first, second).map_err(not_startable)?;
        warn_of_published(first, second);
        let source = match self.open(path) {
            Ok(log) => Source::Open(log),
            Err(OpenError::Taken(_)) if take_over => Source::Predecessor(path.clone()),
            Err(error) => return Err(not_startable(error)),
        };
        Ok(register(host, secrets, source, (self.sign_sync, self.sign_log_max_mb << 20)))
    }

    /// Registers the stage for listing only.
    pub fn register_to_list(&self, host: HostBuilder) -> HostBuilder {
        host.register_fn(STAGE, async |_: Task| Err::<Signed, BoxError>(closed().into()))
    }

    fn open(&self, path: &Path) -> Result<Log, OpenError> {
        Log::open(path, self.sign_sync, self.sign_log_max_mb << 20)
    }

    /// The first option that was given, if any.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--sign-log", self.sign_log.is_some()),
            ("--sign-sync", self.sign_sync),
            ("--sign-first-secret", self.sign_first_secret.is_some()),
            ("--sign-second-secret", self.sign_second_secret.is_some()),
        ];
        options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

fn register(host: HostBuilder, secrets: Secrets, source: Source, limits: (bool, u64)) -> HostBuilder {
    let (tx, rx) = watch::channel(None);
    let first = Cell::new(Some((source, tx)));
    // Called with the host's runtime as the current one, which stages need.
    host.register_stages(STAGE, move |replica| {
        if let Some((source, tx)) = first.take() {
            provide(source, tx, limits);
        }
        stage(replica, secrets.clone(), rx.clone())
    })
}

/// Provides a log, one for all replicas, so that it stays in order.
fn provide(source: Source, tx: watch::Sender<Option<LogStage>>, (is_durable, len_max): (bool, u64)) {
    let path = match source {
        Source::Open(log) => return drop(tx.send_replace(Some(log_stage(BATCH_LEN_MAX, log)))),
        Source::Predecessor(path) => path,
    };
    drop(dapple::spawn(async move {
        loop {
            let opening = path.clone();
            let opened = spawn_blocking(move || Log::open(&opening, is_durable, len_max)).await;
            match opened {
                Ok(Ok(log)) => return drop(tx.send_replace(Some(log_stage(BATCH_LEN_MAX, log)))),
                Ok(Err(OpenError::Taken(_))) => sleep(PREDECESSOR_PAUSE).await,
                Ok(Err(error)) => return tracing::error!(%error, "the stage `{STAGE}` refuses all tasks"),
                Err(error) => return tracing::error!(%error, "the stage `{STAGE}` refuses all tasks"),
            }
        }
    }));
}

/// One replica: the three stages after a queue that refuses excess tasks.
fn stage(replica: usize, secrets: Secrets, log: watch::Receiver<Option<LogStage>>) -> Stage<Task, Signed, BoxError> {
    let made = Arc::new(OnceCell::new());
    let front = Stage::builder(format!("{STAGE} {replica}")).queue_len_max(QUEUE_LEN_MAX).width(WIDTH).shed();
    front.wrap_fn(move |task| {
        let (made, secrets, log) = (made.clone(), secrets.clone(), log.clone());
        async move {
            let pipeline = made.get_or_try_init(|| pipeline(replica, secrets, log)).await?;
            pipeline.ask(task).await.map_err(told)
        }
    })
}

async fn pipeline(
    replica: usize,
    secrets: Secrets,
    mut log: watch::Receiver<Option<LogStage>>,
) -> Result<Pipelined, BoxError> {
    let log = log.wait_for(Option::is_some).await.ok().and_then(|log| log.clone());
    let first = Stage::builder(format!("first digest {replica}")).queue_len_max(WIDTH);
    Ok(around(first, &log.ok_or_else(closed)?, format!("second digest {replica}"), &secrets))
}

/// The error that the caller gets. A refusal means that nothing was done, so the task may go to
/// another host.
fn told(error: Error) -> BoxError {
    let error = match error {
        PipelineError::First(StageError::Refused(refused)) => return refused.into(),
        PipelineError::Next(PipelineError::First(StageError::Refused(refused))) => return refused.into(),
        // The host is unavailable until it can take tasks again.
        PipelineError::Next(PipelineError::First(StageError::Service(LogError::Full(_) | LogError::Closed(_)))) => {
            return closed().into();
        }
        other => other,
    };
    match Failure::from(error) {
        Failure::Failed(_, text) => text.into(),
        Failure::Refused(refused) => format!("after it was logged, {refused}").into(),
    }
}

type Error = PipelineError<Infallible, PipelineError<LogError, StageError<Infallible>>>;

fn closed() -> Refused {
    Refused::new(Reason::Unavailable, CLOSED_RETRY_AFTER)
}

fn not_startable(error: impl std::error::Error) -> HostError {
    HostError::Io(io::Error::other(format!("the stage `{STAGE}` cannot start: {error}")))
}

/// The same as for `dapple sign`.
const BATCH_LEN_MAX: usize = 64;
const WIDTH: usize = 64;
const QUEUE_LEN_MAX: usize = 1024;

const PREDECESSOR_PAUSE: Duration = Duration::from_millis(10);

/// How soon a full or broken log may work again.
const CLOSED_RETRY_AFTER: Duration = Duration::from_secs(1);
