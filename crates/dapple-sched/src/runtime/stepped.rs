//! A runtime without threads: one thread steps its workers, one at a time, in an order of its choice. For simulations.
//!
//! The workers are those of any runtime, with their run queues, stealing, placement and sleep. Only
//! two things differ: one round of a worker's loop is a call, and the call returns where a worker
//! would wait in the driver. From then on a worker *sleeps*, as far as other threads can see, until
//! a post, a kick or [`Stepped::wake`] ends that. If no code wakes it, it stays asleep.
//!
//! | worker | `slept_ns` | next |
//! |---|---|---|
//! | awake | `None` | steps; a step without work: asleep |
//! | asleep | `Some`, and its remote word is `SLEEPING` | `wake`, or another worker takes `SLEEPING` away: to be woken by its next step |
//! | to be woken | `Some`, and its remote word is another | its next step: awake |
//!
//! There is no monitor, because no two workers run at the same time, so no worker can need help in
//! the middle of a callback. The thread has the context of a worker only during a step.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use crate::runtime::context::WorkerScope;
use crate::runtime::{Builder, Handle, ShutdownReport};
use crate::worker::Worker;

/// A runtime with workers that the program steps on one thread; see [`Builder::build_stepped`].
///
/// Dropping it stops it, as [`Stepped::stop`].
///
/// ```
/// use dapple_sched::Runtime;
///
/// let mut runtime = Runtime::builder().workers(2).build_stepped(7)?;
/// let task = runtime.handle().spawn(async { 6 * 7 });
/// while let Some(worker) = (0..2).find(|&worker| runtime.is_awake(worker)) {
///     runtime.step(worker);
/// }
/// assert!(task.is_finished());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Stepped {
    handle: Handle,
    workers: Vec<Virtual>,
    is_stopped: bool,
    /// Its workers have locals, and belong to the thread that made them.
    _thread: PhantomData<*const ()>,
}

struct Virtual {
    worker: Worker,
    /// Since when it sleeps.
    slept_ns: Option<u64>,
}

/// The outcome of a step of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A turn of a color, or some light tasks; or it took colors of another worker, or found events.
    Worked,
    /// It found no work, and sleeps.
    Sleeps,
}

impl Builder {
    /// A runtime without threads, for simulations: the caller steps its workers. `seed` decides
    /// where workers search first when they steal; together with the order of the steps and the
    /// [environment](crate::environment), it decides everything that the runtime does.
    ///
    /// Settings about threads do not apply: names, slow callbacks, and workers that come and go. There are as many workers as
    /// [`Builder::workers`] says, or one.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_stepped(self, seed: u64) -> io::Result<Stepped> {
        let workers = self.workers.unwrap_or(1);
        let policy = self.policy.clone();
        let shared = self.workers(workers).into_shared(true)?;
        let mut seeds = seed;
        let virtuals = (0..workers).map(|index| {
            let worker = Worker::new(shared.clone(), index);
            seeds = seeds.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            worker.prepare_for_steps((seeds >> 32) as u32);
            Virtual { worker, slept_ns: None }
        });
        let stepped =
            Stepped { workers: virtuals.collect(), handle: Handle { shared }, is_stopped: false, _thread: PhantomData };
        for (index, of) in stepped.workers.iter().enumerate() {
            let _scope = WorkerScope::enter(&of.worker);
            if let Some(make) = &policy {
                of.worker.adopt_policy(|| make(index));
            }
            of.worker.comes_round();
        }
        Ok(stepped)
    }
}

impl Stepped {
    /// A reference to this runtime, to be cloned and kept.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Whether a step of this worker may find work.
    ///
    /// # Panics
    /// If there is no worker with that index.
    #[inline]
    pub fn is_awake(&self, worker: usize) -> bool {
        !self.is_stopped && (self.workers[worker].slept_ns.is_none() || !self.handle.shared.slots[worker].is_asleep())
    }

    /// Wakes a worker, as an event or a due timer does: its next step polls the driver.
    ///
    /// # Panics
    /// If there is no worker with that index.
    pub fn wake(&mut self, worker: usize) {
        self.handle.shared.slots[worker].wake_up();
    }

    /// One round of a worker's loop: a turn of the next color, or a search for work, or it falls asleep.
    ///
    /// # Panics
    /// If there is no worker with that index, or this is called from a callback of a worker. Panics
    /// of callbacks are handled as in any runtime.
    pub fn step(&mut self, worker: usize) -> Step {
        assert!(!crate::on_worker(), "a worker's callback cannot step workers");
        if self.is_stopped {
            return Step::Sleeps;
        }
        let of = &mut self.workers[worker];
        let _scope = WorkerScope::enter(&of.worker);
        if let Some(since_ns) = of.slept_ns.take() {
            of.worker.end_sleep(false, since_ns);
        }
        let worked = self.handle.in_thread_context(|| of.worker.round());
        if worked || of.worker.begin_sleep().is_none() {
            return Step::Worked;
        }
        of.slept_ns = Some(self.handle.shared.now_ns());
        Step::Sleeps
    }

    /// Turns that a worker has ended so far.
    ///
    /// # Panics
    /// If there is no worker with that index.
    pub fn turns(&self, worker: usize) -> u64 {
        self.handle.shared.slots[worker].counters.turns()
    }

    /// Stops all workers at their current points: waiting items are dropped, and their destructors
    /// run here, as at the end of [`Runtime::shutdown`](crate::Runtime::shutdown). Once more
    /// changes nothing.
    pub fn stop(&mut self) -> ShutdownReport {
        let shared = &self.handle.shared;
        if !std::mem::replace(&mut self.is_stopped, true) {
            shared.closing.announce();
            shared.stop();
            for of in &mut self.workers {
                let _scope = WorkerScope::enter(&of.worker);
                if let Some(since_ns) = of.slept_ns.take() {
                    of.worker.end_sleep(false, since_ns);
                }
                of.worker.exit();
            }
        }
        // Relaxed: this thread has counted them.
        ShutdownReport {
            callbacks_dropped: shared.callbacks_dropped.load(Relaxed),
            tasks_dropped: shared.tasks_dropped.load(Relaxed),
            workers_stuck: 0,
        }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Stepped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
