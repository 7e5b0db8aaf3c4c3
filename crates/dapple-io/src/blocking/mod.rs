//! Functions that block, on threads of their own.
//!
//! A worker never blocks (C9): it passes blocking functions to a pool of threads. Both the threads
//! and the queue in front of them are bounded, see [`Config`](crate::Config). At the bound
//! [`spawn_blocking`] waits for room, without blocking a thread, and [`try_spawn_blocking`]
//! refuses.

mod pool;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sched::{Handle, foreign};

use crate::driver::standing::Call;
use crate::driver::{Shared, current};
use crate::oneshot;
pub(crate) use pool::Pool;
use pool::{Job, Refusal};

/// Runs a function that may block on a thread of the blocking pool.
///
/// If there is room the function is queued at once, and then runs whether the future is awaited or
/// dropped. If not, the future queues it as soon as there is room, first come, first served; a
/// future dropped before that drops the function unrun. The thread counts as one of the runtime, so
/// `Color::post` and similar functions work.
///
/// Cancel safe in that sense: dropping the future loses the result, but does not stop a queued
/// function.
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let sum = runtime.block_on(dapple_io::blocking::spawn_blocking(|| (1..=10).sum::<u32>()));
/// assert_eq!(sum.unwrap(), 55);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// The future resolves to [`BlockingError`] if the function panics, the runtime shuts down first,
/// or there is none here.
pub fn spawn_blocking<T, F>(f: F) -> Blocking<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (shared, handle) = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Blocking(State::Failed(error)),
    };
    let (job, answer) = job(&shared, f);
    if let Some(environment) = &shared.environment {
        environment.run_blocking(job);
        return Blocking(State::Queued(answer));
    }
    Blocking(match shared.pool.submit(job, &handle) {
        Err(Refusal::Full(job)) => State::Waiting { shared, handle, job: Some(job), answer: Some(answer), place: None },
        submitted => State::after(submitted, answer),
    })
}

/// Like [`spawn_blocking`], but refuses if the queue is full.
///
/// # Errors
///
/// [`BlockingQueueFull`], with the function, if the queue is full: a good moment to refuse a
/// request.
pub fn try_spawn_blocking<T, F>(f: F) -> Result<Blocking<T>, BlockingQueueFull<F>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (shared, handle) = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Ok(Blocking(State::Failed(error))),
    };
    if let Some(environment) = &shared.environment {
        let (job, answer) = job(&shared, f);
        environment.run_blocking(job);
        return Ok(Blocking(State::Queued(answer)));
    }
    if !shared.pool.reserve() {
        return Err(BlockingQueueFull(f));
    }
    let (job, answer) = job(&shared, f);
    Ok(Blocking(State::after(shared.pool.submit_reserved(job, &handle), answer)))
}

/// The state of the current runtime's blocking pool.
///
/// ```
/// use dapple_io::blocking;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async { blocking::spawn_blocking(|| 1).await.unwrap() });
/// let _entered = runtime.enter();
/// let stats = blocking::stats()?;
/// assert_eq!((stats.ran, stats.queued, stats.refused), (1, 0, 0));
/// assert!(stats.threads <= 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// There is no runtime here.
pub fn stats() -> io::Result<BlockingStats> {
    Ok(current::shared()?.pool.stats())
}

/// See [`stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingStats {
    /// Number of threads, at most
    /// [`Config::blocking_threads_max`](crate::Config::blocking_threads_max).
    pub threads: usize,
    /// Threads that wait for work. They end after
    /// [`Config::blocking_idle_timeout`](crate::Config::blocking_idle_timeout).
    pub idle: usize,
    /// Functions that wait for a thread, at most
    /// [`Config::blocking_queue_max`](crate::Config::blocking_queue_max).
    pub queued: usize,
    /// Callers that wait for room in the queue; they still have their functions.
    pub waiting: usize,
    /// Functions that a thread has taken so far.
    pub ran: u64,
    /// Functions that [`try_spawn_blocking`] has returned so far.
    pub refused: u64,
    /// Threads that were started so far.
    pub threads_started: u64,
}

/// See [`spawn_blocking`].
#[must_use = "a function that finds no room in the queue is only run if this is awaited"]
pub struct Blocking<T>(State<T>);

enum State<T> {
    /// No room yet.
    Waiting {
        shared: Arc<Shared>,
        handle: Handle,
        job: Option<Job>,
        answer: Option<oneshot::Receiver<Answer<T>>>,
        /// The place among the waiters for room.
        place: Option<u64>,
    },
    Queued(oneshot::Receiver<Answer<T>>),
    Failed(BlockingError),
    Done,
}

type Answer<T> = Result<T, BlockingError>;

/// The reason why a function on the blocking pool has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum BlockingError {
    /// The function panicked, with this message.
    Panicked(String),
    /// The runtime shut down before the function ran.
    ShutDown,
    /// There is no runtime with a blocking pool here; the text has advice.
    NoRuntime(String),
    /// The pool has no thread, and the kernel refuses to make one.
    NoThread(io::Error),
}

/// The queue of the blocking pool is full; holds the function.
/// [`Config::blocking_threads_max`](crate::Config::blocking_threads_max) threads work on the queue,
/// so try again after one of the functions may have ended.
pub struct BlockingQueueFull<F>(pub F);

/// Runs a function that does blocking I/O.
pub(crate) async fn run<T, F>(f: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    spawn_blocking(f).await.map_err(io::Error::from)?
}

/// The runtime with the pool for this thread.
fn runtime() -> Result<(Arc<Shared>, Handle), BlockingError> {
    let shared = current::shared().map_err(|error| BlockingError::NoRuntime(error.to_string()))?;
    Ok((shared, Handle::current()))
}

/// Makes a job of a function. The job sends its answer to the receiver.
fn job<T, F>(shared: &Arc<Shared>, f: F) -> (Job, oneshot::Receiver<Answer<T>>)
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let call = Call::begin(shared);
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(|| match &call {
            Some(call) => call.run(f),
            None => f(),
        }));
        sender.send(result.map_err(|payload| BlockingError::Panicked(foreign::message(payload))));
    };
    (Box::new(job), receiver)
}

impl<T> State<T> {
    /// The state after handing in a job when there was room for it.
    fn after(submitted: Result<(), Refusal>, answer: oneshot::Receiver<Answer<T>>) -> Self {
        match submitted {
            Ok(()) => State::Queued(answer),
            Err(Refusal::NoThread(error)) => State::Failed(BlockingError::NoThread(error)),
            // Not `Full`: the caller keeps a job for which there was no room.
            Err(Refusal::ShutDown | Refusal::Full(_)) => State::Failed(BlockingError::ShutDown),
        }
    }
}

impl<T> Unpin for Blocking<T> {}

impl<T> Future for Blocking<T> {
    type Output = Result<T, BlockingError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting { shared, handle, job, answer, place } = &mut self.0 {
            let waiting = job.take().expect("kept until it is queued");
            match shared.pool.submit_waiting(waiting, handle, place, cx.waker()) {
                Err(Refusal::Full(waiting)) => {
                    *job = Some(waiting);
                    return Poll::Pending;
                }
                submitted => {
                    let answer = answer.take().expect("taken with the job");
                    self.0 = State::after(submitted, answer);
                }
            }
        }
        let result = match &mut self.0 {
            State::Queued(answer) => match Pin::new(answer).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.unwrap_or(Err(BlockingError::ShutDown)),
            },
            _ => match std::mem::replace(&mut self.0, State::Done) {
                State::Failed(error) => Err(error),
                _ => panic!("polled after it resolved"),
            },
        };
        self.0 = State::Done;
        Poll::Ready(result)
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        if let State::Waiting { shared, place: Some(place), .. } = &self.0 {
            shared.pool.leave(*place);
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Waiting { .. } => "waiting for room",
            State::Queued(_) => "queued",
            State::Failed(_) => "failed",
            State::Done => "done",
        };
        f.debug_tuple("Blocking").field(&state).finish()
    }
}

impl fmt::Display for BlockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockingError::Panicked(message) => {
                write!(f, "a function on the blocking pool panicked: {message}")
            }
            BlockingError::ShutDown => f.write_str("the Dapple runtime has shut down"),
            BlockingError::NoRuntime(advice) => f.write_str(advice),
            BlockingError::NoThread(error) => {
                write!(f, "the blocking pool cannot start its first thread: {error}")
            }
        }
    }
}

impl Error for BlockingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BlockingError::NoThread(error) => Some(error),
            _ => None,
        }
    }
}

impl From<BlockingError> for io::Error {
    fn from(error: BlockingError) -> io::Error {
        io::Error::other(error)
    }
}

impl<F> fmt::Debug for BlockingQueueFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingQueueFull")
    }
}

impl<F> fmt::Display for BlockingQueueFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the blocking pool is full")
    }
}

impl<F> Error for BlockingQueueFull<F> {}
