//! The threads and the queue of the blocking pool.
//!
//! The pool starts threads when there are more jobs than idle threads, up to the bound; they end
//! after having been idle for a while. A job wakes the thread that became idle last, so that under
//! light load the others end. The queue is bounded; a caller that finds it full keeps its job and
//! leaves a waker. Every job taken from the queue makes room, which is promised to the longest
//! waiter, so that no newcomer overtakes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, MutexGuard};
use std::task::Waker;
use std::thread;

use dapple_sched::Handle;
use dapple_sched::foreign::{self, KeptWaker};

use super::BlockingStats;
use crate::driver::Config;
use crate::lock::{Mutex, wait_timeout};

/// A function without arguments or result that sends its own answer.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The reason why a job was not queued.
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
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Threads that wait for work, the last to become idle at the end. The code that takes one out
    /// wakes it.
    idle: Vec<Arc<Condvar>>,
    threads: usize,
    threads_ever: u64,
    /// Slots in the queue that were promised and not taken yet.
    promised: usize,
    /// Waiters for room, oldest first. A waiter that is missing here was promised a slot.
    waiters: BTreeMap<u64, KeptWaker>,
    next_place: u64,
    /// Jobs that were run.
    ran: u64,
    /// Functions that were returned to callers that do not wait.
    refused: u64,
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
        }))
    }

    pub(crate) fn stats(&self) -> BlockingStats {
        let state = self.0.state.lock();
        BlockingStats {
            threads: state.threads,
            idle: state.idle.len(),
            queued: state.queue.len(),
            waiting: state.waiters.len() + state.promised,
            ran: state.ran,
            refused: state.refused,
            threads_started: state.threads_ever,
        }
    }

    /// Promises a slot to the caller, unless the queue is full or others wait.
    pub(crate) fn reserve(&self) -> bool {
        let mut state = self.0.state.lock();
        let has_room = self.0.has_room(&state);
        state.promised += usize::from(has_room);
        state.refused += u64::from(!has_room);
        has_room
    }

    /// Queues a job in a promised place.
    pub(crate) fn submit_reserved(&self, job: Job, handle: &Handle) -> Result<(), Refusal> {
        let mut state = self.0.state.lock();
        state.promised -= 1;
        self.0.queue(state, job, handle)
    }

    /// Queues a job, unless the queue is full or others wait.
    pub(crate) fn submit(&self, job: Job, handle: &Handle) -> Result<(), Refusal> {
        let state = self.0.state.lock();
        match state.is_shut_down || self.0.has_room(&state) {
            true => self.0.queue(state, job, handle),
            false => Err(Refusal::Full(job)),
        }
    }

    /// Queues a job that had to wait, or keeps the waker until there is room.
    pub(crate) fn submit_waiting(
        &self,
        job: Job,
        handle: &Handle,
        place: &mut Option<u64>,
        waker: &Waker,
    ) -> Result<(), Refusal> {
        let waker = KeptWaker::from(waker);
        let mut state = self.0.state.lock();
        let replaced = match *place {
            None if state.is_shut_down || self.0.has_room(&state) => return self.0.queue(state, job, handle),
            None => {
                state.next_place += 1;
                *place = Some(state.next_place);
                let place = state.next_place;
                state.waiters.insert(place, waker);
                None
            }
            Some(own) => match state.waiters.get_mut(&own) {
                Some(kept) => Some(mem::replace(kept, waker)),
                None => {
                    *place = None;
                    state.promised -= 1;
                    return self.0.queue(state, job, handle);
                }
            },
        };
        drop(state);
        drop(replaced);
        Err(Refusal::Full(job))
    }

    /// Gives up a place in the queue. A waiter that leaves with a promise passes it on.
    pub(crate) fn leave(&self, place: u64) {
        let mut state = self.0.state.lock();
        let (left, next) = match state.waiters.remove(&place) {
            Some(left) => (Some(left), None),
            None => {
                state.promised -= 1;
                (None, state.promise())
            }
        };
        drop(state);
        drop(left);
        next.into_iter().for_each(KeptWaker::wake);
    }

    /// Drops queued jobs, and lets the threads end after their current job; waits for none of them.
    pub(crate) fn shut_down(&self) {
        let (queue, waiters) = {
            let mut state = self.0.state.lock();
            state.is_shut_down = true;
            state.idle.drain(..).for_each(|thread| thread.notify_one());
            state.give_up()
        };
        drop_jobs(queue);
        waiters.into_values().for_each(KeptWaker::wake);
    }
}

/// Drops jobs that no thread will run. Their contents are foreign.
fn drop_jobs(jobs: VecDeque<Job>) {
    jobs.into_iter().for_each(|job| _ = foreign::contain(|| drop(job)));
}

impl State {
    /// Promises a slot to the longest waiter; the waker tells it.
    fn promise(&mut self) -> Option<KeptWaker> {
        let (_, waker) = self.waiters.pop_first()?;
        self.promised += 1;
        Some(waker)
    }

    /// Takes out all queued jobs, and promises slots to all waiters: once woken, they learn the
    /// state.
    fn give_up(&mut self) -> (VecDeque<Job>, BTreeMap<u64, KeptWaker>) {
        self.promised += self.waiters.len();
        (mem::take(&mut self.queue), mem::take(&mut self.waiters))
    }
}

impl Inner {
    /// Whether a newcomer may queue a job.
    fn has_room(&self, state: &State) -> bool {
        state.waiters.is_empty() && state.queue.len() + state.promised < self.config.blocking_queue_max
    }

    /// Queues a job for which there is room, and finds a thread for it.
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, State>, job: Job, handle: &Handle) -> Result<(), Refusal> {
        if state.is_shut_down {
            return Err(Refusal::ShutDown);
        }
        state.queue.push_back(job);
        if let Some(thread) = state.idle.pop() {
            drop(state);
            thread.notify_one();
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
            handle.in_thread_context(|| inner.work());
        };
        thread::Builder::new().name(name).spawn(body).map(drop)
    }

    /// Handles a thread that could not be started: the others do the work. Without other threads,
    /// none will serve the queue.
    fn without_thread(&self, error: io::Error) -> Result<(), Refusal> {
        let (queue, waiters) = {
            let mut state = self.state.lock();
            state.threads -= 1;
            if state.threads > 0 {
                return Ok(());
            }
            state.give_up()
        };
        drop_jobs(queue);
        waiters.into_values().for_each(KeptWaker::wake);
        Err(Refusal::NoThread(error))
    }

    /// The body of a thread of the pool.
    fn work(&self) {
        let bell = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.ran += 1;
                let next = state.promise();
                drop(state);
                next.into_iter().for_each(KeptWaker::wake);
                // The job sends its own answer; only a destructor in it can still panic, which ends
                // that job only.
                foreign::contain(job);
                state = self.state.lock();
                continue;
            }
            if state.is_shut_down {
                break;
            }
            state.idle.push(bell.clone());
            let (woken, timed_out) = wait_timeout(&bell, state, self.config.blocking_idle_timeout);
            state = woken;
            // Still in the list: no caller has woken it, and so no job relies on it.
            if let Some(own) = state.idle.iter().position(|thread| Arc::ptr_eq(thread, &bell)) {
                state.idle.remove(own);
                if timed_out && state.queue.is_empty() {
                    break;
                }
            }
        }
        state.threads -= 1;
    }
}
