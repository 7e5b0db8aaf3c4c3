//! The threads and the queue of the blocking pool.
//!
//! Threads are started when there are more jobs than idle threads, up to the bound, and end after having been idle for a
//! while. The queue is bounded; whoever finds it full keeps its job and leaves a waker, and every job taken from the
//! queue wakes the one who has waited longest. A newcomer does not overtake those who wait.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, MutexGuard};
use std::task::Waker;
use std::thread;

use dapple_sched::Handle;

use crate::driver::Config;
use crate::lock::{Mutex, wait_timeout};

/// A function without arguments or result that answers by itself.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Why a job was not queued.
pub(crate) enum Refusal {
    Full(Job),
    ShutDown,
    NoThread(io::Error),
}

/// One per runtime.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    config: Config,
    state: Mutex<State>,
    /// Notified for every job that an idle thread is to take, and at shutdown.
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Threads that wait for work, or were notified and have not looked yet.
    idle: usize,
    threads: usize,
    threads_ever: u64,
    /// Who waits for room, longest first. A place that is gone was told that there is room.
    waiters: VecDeque<(u64, Waker)>,
    next_place: u64,
    is_shut_down: bool,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Self {
        Pool(Arc::new(Inner {
            config: Config {
                blocking_threads_max: config.blocking_threads_max.max(1),
                blocking_queue_max: config.blocking_queue_max.max(1),
                ..config
            },
            state: Mutex::default(),
            work: Condvar::new(),
        }))
    }

    pub(crate) fn is_full(&self) -> bool {
        let state = self.0.state.lock();
        self.0.is_full(&state) || !state.waiters.is_empty()
    }

    /// Queues a job, unless there is no room or others wait for it.
    pub(crate) fn submit(&self, job: Job, handle: &Handle) -> Result<(), Refusal> {
        let state = self.0.state.lock();
        if !state.waiters.is_empty() {
            return Err(Refusal::Full(job));
        }
        self.0.queue(state, job, handle)
    }

    /// Queues a job that had to wait, or keeps the waker for when there is room.
    pub(crate) fn submit_waiting(
        &self,
        job: Job,
        handle: &Handle,
        place: &mut Option<u64>,
        waker: &Waker,
    ) -> Result<(), Refusal> {
        let mut state = self.0.state.lock();
        let waiting = state.waiters.iter_mut().find(|(kept, _)| Some(*kept) == *place);
        if let Some((_, kept)) = waiting {
            // Not its turn yet.
            kept.clone_from(waker);
            return Err(Refusal::Full(job));
        }
        if self.0.is_full(&state) && !state.is_shut_down {
            state.next_place += 1;
            *place = Some(state.next_place);
            let entry = (state.next_place, waker.clone());
            state.waiters.push_back(entry);
            return Err(Refusal::Full(job));
        }
        *place = None;
        self.0.queue(state, job, handle)
    }

    /// Gives up a place. One who was told of room and leaves passes it on.
    pub(crate) fn leave(&self, place: u64) {
        let mut state = self.0.state.lock();
        let position = state.waiters.iter().position(|(kept, _)| *kept == place);
        let gone = match position {
            Some(position) => state.waiters.remove(position),
            None => {
                let next = state.waiters.pop_front();
                drop(state);
                next.into_iter().for_each(|(_, waker)| waker.wake());
                return;
            }
        };
        drop(state);
        drop(gone);
    }

    /// Drops what is queued, and lets the threads end when they are done with what they have; waits for none of them.
    pub(crate) fn shut_down(&self) {
        let (queue, waiters) = {
            let mut state = self.0.state.lock();
            state.is_shut_down = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.waiters))
        };
        self.0.work.notify_all();
        drop(queue);
        waiters.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Inner {
    fn is_full(&self, state: &State) -> bool {
        state.queue.len() >= self.config.blocking_queue_max
    }

    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, State>, job: Job, handle: &Handle) -> Result<(), Refusal> {
        if state.is_shut_down {
            return Err(Refusal::ShutDown);
        }
        if self.is_full(&state) {
            return Err(Refusal::Full(job));
        }
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            drop(state);
            self.work.notify_one();
            return Ok(());
        }
        if state.threads == self.config.blocking_threads_max {
            return Ok(());
        }
        state.threads += 1;
        state.threads_ever += 1;
        let name = format!("dapple-block-{}", state.threads_ever);
        drop(state);
        match self.start_thread(name, handle.clone()) {
            Ok(()) => Ok(()),
            Err(error) => self.without_thread(error),
        }
    }

    fn start_thread(self: &Arc<Self>, name: String, handle: Handle) -> io::Result<()> {
        let inner = self.clone();
        let body = move || {
            let _entered = handle.enter();
            inner.work();
        };
        thread::Builder::new().name(name).spawn(body).map(drop)
    }

    /// A thread could not be started: the others do the work, if there are others.
    fn without_thread(&self, error: io::Error) -> Result<(), Refusal> {
        let orphans = {
            let mut state = self.state.lock();
            state.threads -= 1;
            if state.threads > 0 {
                return Ok(());
            }
            std::mem::take(&mut state.queue)
        };
        drop(orphans);
        Err(Refusal::NoThread(error))
    }

    /// What a thread of the pool does.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                let next = state.waiters.pop_front();
                drop(state);
                next.into_iter().for_each(|(_, waker)| waker.wake());
                // The job answers by itself; what can still panic is a destructor in it, which ends that job only.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
                continue;
            }
            if state.is_shut_down {
                break;
            }
            state.idle += 1;
            let (woken, timed_out) = wait_timeout(&self.work, state, self.config.blocking_idle_timeout);
            state = woken;
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}
