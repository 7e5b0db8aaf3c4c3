//! The parts of the scheduler for the models in `tests/`: workers that a model steps itself, on
//! threads of its own.
//!
//! Compiled only with `--cfg dapple_loom` or `--cfg dapple_shuttle`.

use std::sync::Arc;
use std::time::Duration;

use crate::color::Color;
use crate::observe::trace::Watch;
use crate::runtime::Handle;
use crate::runtime::context::WorkerScope;
use crate::runtime::cpus::Cpus;
use crate::runtime::driver::Driver;
use crate::runtime::panics::PanicInfo;
use crate::runtime::shared::{Setup, Shared};
use crate::worker::Worker;
use crate::worker::monitor::{self, SlowRule};

#[cfg(dapple_loom)]
pub use crate::memory::model::{Block, Blocks, Keeper};

/// A runtime without threads and without a monitor.
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

impl Model {
    /// A runtime of this many workers, none of which runs yet. Panics are counted and not reported:
    /// the hook that prints them, and fails models, has seen them already.
    pub fn new(workers: usize, driver: Arc<dyn Driver>) -> Model {
        Model::make(workers, driver, None)
    }

    /// As `new`, with workers that come and go by [`Model::set_active`]. At first all are in use.
    pub fn with_rests(workers: usize, driver: Arc<dyn Driver>) -> Model {
        Model::make(workers, driver, Some(Cpus::new(workers, Default::default())))
    }

    /// From now on `active` workers are in use, and the others rest, as set by the monitor.
    pub fn set_active(&self, active: usize) {
        self.shared.set_active(active);
    }

    /// The number of workers that count as asleep and able to help.
    pub fn sleepers(&self) -> usize {
        self.shared.sleepers()
    }

    fn make(workers: usize, driver: Arc<dyn Driver>, cpus: Option<Cpus>) -> Model {
        let quiet = Some(Box::new(|_: &PanicInfo<'_>| ()) as _);
        // Slow callbacks depend on time, which models do not have.
        let never_slow = SlowRule { after: Duration::MAX, ..SlowRule::default() };
        let shared = Shared::new(
            workers,
            driver,
            quiet,
            never_slow,
            Watch::new(None, false),
            Setup { cpus, ..Setup::default() },
        );
        Model { shared: shared.expect("a model's alarm needs nothing") }
    }

    /// A handle, for colors, tasks and counters.
    pub fn handle(&self) -> Handle {
        Handle::from_shared(self.shared.clone())
    }

    /// Makes the calling thread a worker while `f` runs.
    pub fn worker<R>(&self, index: usize, f: impl FnOnce(&ModelWorker<'_>) -> R) -> R {
        let worker = Worker::new(self.shared.clone(), index);
        let _scope = WorkerScope::enter(&worker);
        // As `Worker::run` begins.
        worker.comes_round();
        f(&ModelWorker { worker: &worker })
    }

    /// References to the runtime: this one, its clones, handles, and each color that has not been
    /// freed.
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Tells all workers to stop, as a shutdown does.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Marks a color's callbacks as long, so that placement does not move the color.
    pub fn seem_long(&self, color: &Color) {
        // SAFETY: a handle keeps its cell alive.
        unsafe { color.cell().as_ref() }.seem_long();
    }

    /// The body of the monitor's thread, which returns when the runtime ends. Between two of its
    /// checks other threads can run.
    pub fn monitor(&self) -> impl FnOnce() + Send + 'static {
        let (shared, timer) = (Arc::downgrade(&self.shared), self.shared.alarm.timer());
        move || monitor::run(shared, timer)
    }

    /// Whether the monitor found the worker in a callback that does not end.
    pub fn is_overdue(&self, worker: usize) -> bool {
        self.shared.slots[worker].is_overdue()
    }

    /// Marks a worker as the monitor marks one in a long callback, whether the worker is in one or
    /// not; the mark ends when a thief comes.
    pub fn mark_overdue(&self, worker: usize) {
        self.shared.slots[worker].mark.set_overdue_for_good();
    }
}

/// The lock of a worker's run queue, around a number.
#[cfg(dapple_loom)]
#[derive(Clone)]
pub struct OwnedLock(Arc<crate::sync::lock::OwnedLock<u32>>);

#[cfg(dapple_loom)]
impl OwnedLock {
    /// A lock without an owner.
    pub fn new(driver: Arc<dyn Driver>) -> OwnedLock {
        OwnedLock(Arc::new(crate::sync::lock::OwnedLock::new(&driver, 0)))
    }

    /// Makes the calling thread the owner, until [`OwnedLock::unbind`].
    pub fn bind(&self) {
        self.0.bind();
    }

    /// Ends what [`OwnedLock::bind`] began.
    pub fn unbind(&self) {
        self.0.unbind();
    }

    /// Runs `f` while the lock is held.
    pub fn lock<R>(&self, f: impl FnOnce(&mut u32) -> R) -> R {
        f(&mut self.0.lock())
    }

    /// The same, if the lock is free.
    pub fn try_lock<R>(&self, f: impl FnOnce(&mut u32) -> R) -> Option<R> {
        self.0.try_lock().map(|mut guard| f(&mut guard))
    }
}

/// A worker that the model steps.
pub struct ModelWorker<'a> {
    worker: &'a Worker,
}

impl ModelWorker<'_> {
    /// Ends the last turn and runs the next; false if there was none to run.
    pub fn step(&self) -> bool {
        self.worker.step()
    }

    /// Runs turns until there is nothing to run.
    pub fn drain(&self) {
        while self.step() {}
    }

    /// Steals once.
    pub fn steal(&self) -> bool {
        self.worker.steal()
    }

    /// Sleeps in the driver, if there is no work.
    pub fn sleep(&self) {
        self.worker.sleep();
    }

    /// Works until [`Model::stop`], then drops everything left.
    pub fn run(&self) {
        self.worker.run();
    }

    /// Drops everything left, as a worker does that stops.
    pub fn exit(&self) {
        self.worker.exit();
    }
}
