//! A thread for each task, and no stage (Gribble, 4.4.1, Figure 21).
//!
//! A thread takes a task through both digests and waits for the disk in between. It then takes the
//! next task that arrives within a while, like the thesis's pool. When all allowed threads have a
//! task, the next task is refused.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dapple::stage::{Reason, Refused};
use dapple::sync::oneshot;

use super::{Failure, Kind, Parts, Signed, Task};
use crate::log::Entry;

/// The threads. Clones share them; they end when all clones are dropped and no task is left.
#[derive(Clone, Debug)]
pub(crate) struct Threads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: Parts,
    threads_max: usize,
    state: Mutex<State>,
    /// Signals a task to an idle thread.
    come: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs that idle threads are about to take; never more than there are such threads.
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    /// The average duration of a task, in which the last sixteen count most.
    mean: Duration,
}

#[derive(Debug)]
struct Job {
    task: Task,
    answer: oneshot::Sender<Result<Signed, Failure>>,
}

impl Threads {
    pub(super) fn new(threads_max: usize, parts: Parts) -> Threads {
        Threads(Arc::new(Shared { parts, threads_max, state: Mutex::default(), come: Condvar::new() }))
    }

    pub(super) fn sign(&self, task: Task) -> impl Future<Output = Result<Signed, Failure>> + Send + use<> {
        let (answer, rx) = oneshot::channel();
        let taken = self.take(Job { task, answer });
        async move {
            taken?;
            rx.await
                .unwrap_or_else(|_| Err(Failure::Failed(Kind::Internal, "the thread of the task has died".to_owned())))
        }
    }

    fn take(&self, job: Job) -> Result<(), Failure> {
        let mut state = self.0.state();
        if state.jobs.len() < state.idle {
            state.jobs.push_back(job);
            self.0.come.notify_one();
            return Ok(());
        }
        if state.threads >= self.0.threads_max {
            return Err(Failure::Refused(Refused::new(Reason::Busy, state.mean)));
        }
        let shared = self.0.clone();
        let began = thread::Builder::new().name("dapple-sign".to_owned()).spawn(move || shared.work(job));
        match began {
            Ok(_) => {
                state.threads += 1;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, threads = state.threads, "cannot start a further thread");
                Err(Failure::Refused(Refused::new(Reason::Busy, state.mean)))
            }
        }
    }
}

impl Shared {
    /// The loop of a thread.
    fn work(&self, job: Job) {
        let mut next = Some(job);
        while let Some(job) = next {
            let begin = Instant::now();
            // A client that has left needs no answer.
            let _ = job.answer.send(self.sign(&job.task));
            next = self.next_job(begin.elapsed());
        }
    }

    fn sign(&self, task: &Task) -> Result<Signed, Failure> {
        let first = self.parts.secrets.first(&task.body);
        let sequence = self.parts.log.append_blocking(Entry { id: task.id, digest: first })?;
        Ok(Signed { sequence, first, second: self.parts.secrets.second(&task.body) })
    }

    /// The next task for this thread; `None`, and the thread no longer counts, if none arrives for
    /// a while.
    fn next_job(&self, took: Duration) -> Option<Job> {
        let mut state = self.state();
        state.mean = (state.mean * 15 + took) / 16;
        state.idle += 1;
        let waited = self.come.wait_timeout_while(state, IDLE_MAX, |state| state.jobs.is_empty());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a thread waits for another task.
const IDLE_MAX: Duration = Duration::from_secs(5);
