//! The threads and the queue of the blocking pool.
//!
//! Threads are started when there are more jobs than idle threads, up to the bound, and end after having been idle for a
//! while. The queue is bounded; whoever finds it full keeps its job and leaves a waker. Every job taken from the queue
//! leaves a room, which is promised to the one who has waited longest, so that no newcomer overtakes.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, MutexGuard};
use std::task::Waker;
use std::thread;

use dapple_sched::Handle;

use crate::driver::Config;
use crate::lock::{Mutex, refresh, wait_timeout};

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
    /// Rooms in the queue that somebody was promised and has not taken yet.
    promised: usize,
    /// Who waits for room, longest first. Whose place is gone was promised a room.
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

    /// Promises a room to the caller, unless there is none or others wait for it.
    pub(crate) fn reserve(&self) -> bool {
        let mut state = self.0.state.lock();
        let has_room = self.0.has_room(&state);
        state.promised += usize::from(has_room);
        has_room
    }

    /// Queues a job in a room that was promised.
    pub(crate) fn submit_reserved(&self, job: Job, handle: &Handle) -> Result<(), Refusal> {
        let mut state = self.0.state.lock();
        state.promised -= 1;
        self.0.queue(state, job, handle)
    }

    /// Queues a job, unless there is no room or others wait for it.
    pub(crate) fn submit(&self, job: Job, handle: &Handle) -> Result<(), Refusal> {
        let state = self.0.state.lock();
        match state.is_shut_down || self.0.has_room(&state) {
            true => self.0.queue(state, job, handle),
            false => Err(Refusal::Full(job)),
        }
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
        let replaced = match *place {
            None if state.is_shut_down || self.0.has_room(&state) => return self.0.queue(state, job, handle),
            None => {
                state.next_place += 1;
                *place = Some(state.next_place);
                let entry = (state.next_place, waker.clone());
                state.waiters.push_back(entry);
                None
            }
            Some(own) => match state.waiters.iter_mut().find(|(kept, _)| *kept == own) {
                Some((_, kept)) => refresh(kept, waker),
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

    /// Gives up a place. One who was promised a room and leaves passes it on.
    pub(crate) fn leave(&self, place: u64) {
        let mut state = self.0.state.lock();
        let position = state.waiters.iter().position(|(kept, _)| *kept == place);
        let (left, next) = match position {
            Some(position) => (state.waiters.remove(position), None),
            None => {
                state.promised -= 1;
                (None, state.promise())
            }
        };
        drop(state);
        drop(left);
        next.into_iter().for_each(Waker::wake);
    }

    /// Drops what is queued, and lets the threads end when they are done with what they have; waits for none of them.
    pub(crate) fn shut_down(&self) {
        let (queue, waiters) = {
            let mut state = self.0.state.lock();
            state.is_shut_down = true;
            state.give_up()
        };
        self.0.work.notify_all();
        drop(queue);
        waiters.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl State {
    /// Promises a room to the one who has waited longest; the waker tells.
    fn promise(&mut self) -> Option<Waker> {
        let (_, waker) = self.waiters.pop_front()?;
        self.promised += 1;
        Some(waker)
    }

    /// Takes out all that is queued, and promises rooms to all who wait: woken, they learn how things are.
    fn give_up(&mut self) -> (VecDeque<Job>, VecDeque<(u64, Waker)>) {
        self.promised += self.waiters.len();
        (mem::take(&mut self.queue), mem::take(&mut self.waiters))
    }
}

impl Inner {
    /// Whether a newcomer may queue a job.
    fn has_room(&self, state: &State) -> bool {
        state.waiters.is_empty() && state.queue.len() + state.promised < self.config.blocking_queue_max
    }

    /// Queues a job for which there is room, and sees to a thread that takes it.
    fn queue(self: &Arc<Self>, mut state: MutexGuard<'_, State>, job: Job, handle: &Handle) -> Result<(), Refusal> {
        if state.is_shut_down {
            return Err(Refusal::ShutDown);
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

    /// A thread could not be started: the others do the work. If there are none, nobody will come to what is queued.
    fn without_thread(&self, error: io::Error) -> Result<(), Refusal> {
        let (queue, waiters) = {
            let mut state = self.state.lock();
            state.threads -= 1;
            if state.threads > 0 {
                return Ok(());
            }
            state.give_up()
        };
        drop(queue);
        waiters.into_iter().for_each(|(_, waker)| waker.wake());
        Err(Refusal::NoThread(error))
    }

    /// What a thread of the pool does.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                let next = state.promise();
                drop(state);
                next.into_iter().for_each(Waker::wake);
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
