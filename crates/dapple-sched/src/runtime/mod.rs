//! Runtimes: building them, finding the current one, shutting them down (all in this file); what their workers share (`shared`), what the
//! current thread is (`context`), and how code of others is called (`driver`, `foreign`, `panics`).
//!
//! Imports from below: `sync`, `memory`, `color`. This file and `shared` put a runtime together out of parts of nearly all modules, and
//! import those. Begin with the table in `shared`; then read `context`.

mod all;
pub(crate) mod block_on;
pub(crate) mod closing;
pub(crate) mod context;
pub(crate) mod cpus;
pub(crate) mod driver;
pub(crate) mod enter;
pub mod foreign;
pub(crate) mod fork;
pub(crate) mod panics;
pub(crate) mod shared;
mod start;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) mod stepped;
pub(crate) mod switches;
pub(crate) mod thread_context;

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::color::Color;
use crate::color::cell::Kind;
use crate::observe::stats::RuntimeStats;
use crate::observe::trace::Observer;
use crate::runtime::closing::Closed;
use crate::runtime::driver::Driver;
use crate::runtime::enter::EnterGuard;
use crate::runtime::panics::PanicInfo;
use crate::runtime::shared::Shared;
use crate::runtime::thread_context::ThreadContext;
use crate::sync::atomic::Ordering::*;
use crate::task::{self, JoinHandle, Start, light};
use crate::worker::monitor::{SlowCallback, SlowRule};
use crate::worker::placement;
use crate::worker::policy::Policy;
use crate::worker::tuning::Asked;

pub(crate) type PanicHandler = Box<dyn Fn(&PanicInfo<'_>) + Send + Sync>;
type MakePolicy = Arc<dyn Fn(usize) -> Box<dyn Policy> + Send + Sync>;
type Run = Box<dyn FnOnce() + Send>;
type MakeDriver = Box<dyn FnOnce(usize) -> io::Result<Arc<dyn Driver>>>;
type MakeContext = Box<dyn FnOnce() -> io::Result<Arc<dyn ThreadContext>>>;

/// The runtimes of this process that have not shut down, oldest first.
static RUNNING: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Panics if all runtimes that are left are those of a process that has forked this one. Called where there is no other.
pub(crate) fn check_process() {
    if running().iter().filter_map(Weak::upgrade).any(|shared| shared.is_left_behind()) {
        fork::refuse();
    }
}

/// Refers to one runtime. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// The current runtime: on a worker, its own; on a thread that has entered one, that; on any other thread, the
    /// oldest one of the process that still runs.
    ///
    /// # Panics
    /// If there is none.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Handle;
    ///
    /// assert_eq!(Handle::current().workers(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current() -> Handle {
        Handle::try_current().unwrap_or_else(|| {
            check_process();
            panic!(
                "no Dapple runtime runs in this process: mark main with #[dapple::main], or build one with \
                 dapple::builder() before you make colors, states or tasks"
            )
        })
    }

    /// As [`Handle::current`], or `None`.
    pub fn try_current() -> Option<Handle> {
        Handle::of_thread().or_else(|| {
            let oldest = running().iter().filter_map(Weak::upgrade).find(|shared| !shared.is_left_behind());
            oldest.map(|shared| Handle { shared })
        })
    }

    /// The runtime that the calling thread is a worker of, or has entered; `None` elsewhere, also where a runtime runs: for
    /// what works on any executor, and must not depend on a runtime that its caller knows nothing of.
    ///
    /// ```
    /// use dapple_sched::{Handle, Runtime};
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// assert!(Handle::of_thread().is_none());
    /// assert!(runtime.block_on(async { Handle::of_thread() }).is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of_thread() -> Option<Handle> {
        let of_worker = context::with_worker(|worker| worker.shared.clone());
        let shared = of_worker.filter(|shared| !shared.is_left_behind()).or_else(enter::newest)?;
        Some(Handle { shared })
    }

    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn from_shared(shared: Arc<Shared>) -> Handle {
        Handle { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The index of the worker that the calling thread is, if it is one of this runtime.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Handle;
    ///
    /// let handle = runtime.handle().clone();
    /// assert_eq!(handle.worker_index(), None);
    /// let task = runtime.spawn(async move { handle.worker_index() });
    /// assert_eq!(runtime.block_on(task).unwrap(), Some(0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn worker_index(&self) -> Option<usize> {
        context::index_in(&self.shared)
    }

    /// How many workers there are, those that rest included; see [`Builder::follow_cpus`].
    pub fn workers(&self) -> usize {
        self.shared.slots.len()
    }

    /// Whether every worker is asleep or about to be, and no color is linked to any: for drivers whose clock stands still.
    /// What a thread has posted before it asks is seen, also where somebody else has yet to wake the worker for it.
    #[doc(hidden)]
    pub fn all_asleep(&self) -> bool {
        self.shared.slots.iter().all(|slot| slot.is_asleep())
    }

    /// The driver, if it is a `D`.
    pub fn driver<D: Driver>(&self) -> Option<&D> {
        let driver: &dyn std::any::Any = &*self.shared.driver;
        driver.downcast_ref()
    }

    /// Makes this the current runtime of the calling thread until the guard is dropped.
    pub fn enter(&self) -> EnterGuard {
        EnterGuard::new(self.shared.clone())
    }

    /// Starts a task with a color of its own.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; what it yields is dropped.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let place = if light::allowed(&self.shared) {
            Start::Light(self.shared.clone())
        } else {
            Start::Colored(self.new_color())
        };
        task::spawn(place, false, Location::caller(), future)
    }

    /// Starts a task with a color of its own; see [`crate::spawn_balanced`].
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; what it yields is dropped.
    #[track_caller]
    pub fn spawn_balanced<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match placement::shortest_queue(&self.shared) {
            Some(worker) => self.new_color_at(worker).spawn(future),
            None => self.spawn(future),
        }
    }

    /// A fresh color of this runtime; see [`Color::new`].
    pub fn new_color(&self) -> Color {
        let home = self.worker_index().unwrap_or(0);
        self.new_color_at(home)
    }

    /// A fresh color whose first home is the given worker. A hint for measurements: colors move.
    #[doc(hidden)]
    pub fn new_color_at(&self, worker: usize) -> Color {
        let id = self.shared.fresh_id();
        Color::from_counted(Color::allocate(&self.shared, Kind::Fresh, id, worker % self.workers()))
    }

    /// A fresh color of this runtime that stays on one worker; see [`Color::pinned`].
    ///
    /// # Panics
    /// If there is no worker with that index.
    pub fn pinned_color(&self, worker: usize) -> Color {
        let workers = self.workers();
        assert!(worker < workers, "worker {worker}: this runtime has the workers 0 to {}", workers - 1);
        let id = self.shared.fresh_id();
        Color::from_counted(Color::allocate(&self.shared, Kind::Pinned, id, worker))
    }

    /// The color of that name in this runtime; see [`Color::named`].
    pub fn named_color(&self, name: u64) -> Color {
        if name == 0 {
            return self.default_color();
        }
        let home = self.worker_index().unwrap_or(0);
        let make = || Color::allocate(&self.shared, Kind::Named, name, home);
        Color::from_counted(self.shared.registry.find_or_insert(name, make))
    }

    /// The default color of this runtime, whatever runtime is current when it is used.
    pub fn default_color(&self) -> Color {
        // SAFETY: the default color lives as long as the runtime, which we hold.
        unsafe { Color::retain(self.shared.default_color()) }
    }

    /// What the runtime has done since it started, and what waits in it.
    ///
    /// Cost: a few loads per worker, and a few for each color that exists, as nobody counts what waits before he is asked:
    /// less than 1 us for a hundred colors, and about 20 ms for a million. No worker is kept from its work.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// let stats = runtime.handle().stats();
    /// println!("{} workers, {} tasks", stats.workers.len(), stats.tasks_live);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> RuntimeStats {
        let slots = self.shared.slots.iter().zip(crate::observe::inspect::queued_by_home(&self.shared));
        RuntimeStats {
            // Relaxed: numbers to show.
            workers: slots.map(|(slot, queued)| slot.counters.snapshot(slot.len.load(Relaxed), queued)).collect(),
            workers_active: self.shared.active(),
            tasks_live: self.shared.tasks_live.load(Relaxed) as u64,
            posts_outside: self.shared.posts_outside.load(Relaxed),
        }
    }

    /// Turns on or off that the runtime measures how long callbacks wait and run, for [`Color::stats`] and
    /// [`Handle::stats`]. It counts callbacks that are accepted while this is on, and costs for each a block of 64 bytes and
    /// three looks at the clock; and closures that run in line, as those of [`Colored::with`](crate::Colored::with), with two.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    /// use std::time::Duration;
    ///
    /// runtime.handle().measure_times(true);
    /// let color = Color::new();
    /// color.post(|| std::thread::sleep(Duration::from_millis(2))); // a long computation
    /// let other = color.clone();
    /// let stats = runtime.block_on(color.spawn(async move { other.stats() })).unwrap();
    /// assert_eq!(stats.measured, 1);
    /// assert!(stats.run_ns >= 2_000_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn measure_times(&self, on: bool) {
        self.shared.watch.set_measures(on);
    }

    /// Ready when [`Runtime::shutdown`] has been called: tasks that can end by themselves await it.
    ///
    /// Cancel safe: nothing is lost by dropping it, and another one tells the same.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Handle;
    /// use std::time::Duration;
    ///
    /// let _detached = runtime.spawn(async {
    ///     Handle::current().closing().await;
    ///     println!("says goodbye, and ends");
    /// });
    /// # drop(_entered);
    /// let report = runtime.shutdown(Duration::from_secs(10));
    /// assert_eq!(report.tasks_dropped, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn closing(&self) -> Closed {
        Closed::new(self.shared.clone())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

/// Settings of a runtime that is about to be built.
///
/// ```
/// use dapple_sched::Runtime;
///
/// let runtime = Runtime::builder()
///     .workers(2)
///     .thread_name("web")
///     .panic_handler(|panic| eprintln!("color {}: {}", panic.color, panic.message))
///     .build()?;
/// assert_eq!(runtime.handle().workers(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    workers: Option<usize>,
    thread_name: String,
    panic_handler: Option<PanicHandler>,
    slow_rule: SlowRule,
    observer: Option<Arc<dyn Observer>>,
    measure_times: bool,
    driver: Option<MakeDriver>,
    policy: Option<MakePolicy>,
    tuning: Asked,
    follow_cpus: Option<bool>,
    system_root: PathBuf,
    thread_context: Option<MakeContext>,
}

impl Builder {
    /// The defaults.
    pub fn new() -> Builder {
        Builder {
            workers: None,
            thread_name: "dapple".to_owned(),
            panic_handler: None,
            slow_rule: SlowRule::default(),
            observer: None,
            measure_times: false,
            driver: None,
            policy: None,
            tuning: Asked::default(),
            follow_cpus: None,
            system_root: PathBuf::from("/"),
            thread_context: None,
        }
    }

    /// How many workers, from 1 to 1,024. Default: as many as the environment variable `DAPPLE_WORKERS` says. Without it, one per
    /// processor that CPU affinity and the quotas of the control groups leave to the process, a quota rounded up; these follow later
    /// changes, see [`Builder::follow_cpus`].
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Whether workers come and go while the runtime runs, with the processors that CPU affinity and the quotas of the control
    /// groups leave to the process. Default: yes where neither
    /// [`Builder::workers`] nor `DAPPLE_WORKERS` is set, no otherwise.
    ///
    /// About once a second, while there is something to do, the runtime looks how many processors there are. Where there are
    /// fewer than workers, the last workers rest: they hand their colors over to the others, and sleep. Where there are more again,
    /// they go on. There never are more workers than the runtime was built with: set `workers` to the most that may be useful
    /// where a quota may grow beyond what it is at the start.
    ///
    /// Colors that are pinned to a worker that rests still run there. The affinity that counts is that of the runtime's own
    /// threads: `taskset -a -p` changes it, and so does a `cpuset`. At most 1,024 processors are told apart.
    ///
    /// ```
    /// use dapple_sched::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(8).follow_cpus(true).build()?;
    /// let stats = runtime.handle().stats();
    /// assert_eq!(stats.workers.len(), 8);
    /// assert!((1..=8).contains(&stats.workers_active));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn follow_cpus(mut self, on: bool) -> Builder {
        self.follow_cpus = Some(on);
        self
    }

    /// What the workers' threads are called, followed by `-` and an index. Default: `dapple`.
    pub fn thread_name(mut self, prefix: impl Into<String>) -> Builder {
        self.thread_name = prefix.into();
        self
    }

    /// Called when a callback panics that nobody awaits, or a waker, a destructor, a driver or the handler of slow callbacks.
    /// Default: a line on standard error. It runs on the thread of the panic, and must not block.
    pub fn panic_handler(mut self, handler: impl Fn(&PanicInfo<'_>) + Send + Sync + 'static) -> Builder {
        self.panic_handler = Some(Box::new(handler));
        self
    }

    /// Called once for each callback that has kept its worker for longer than `after` (C9): it blocks, or should be
    /// split up. Default: a line on standard error after 100 ms. It runs on a thread of its own, and is accurate to some
    /// 10 ms.
    ///
    /// ```
    /// use dapple_sched::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder()
    ///     .slow_callback(Duration::from_millis(20), |slow| eprintln!("color {} is slow", slow.color_id))
    ///     .build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn slow_callback(
        mut self,
        after: Duration,
        handler: impl Fn(&SlowCallback) + Send + Sync + 'static,
    ) -> Builder {
        self.slow_rule = SlowRule { after, handler: Box::new(handler) };
        self
    }

    /// Is told of every callback: accepted, started, ended. Default: nobody, at the cost of two branches for each callback.
    /// With an observer, each costs a block of 64 bytes and three looks at the clock more.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Builder {
        self.observer = Some(observer);
        self
    }

    /// Whether to measure exactly how long callbacks wait and run, from the start on; see [`Handle::measure_times`].
    /// Default: no.
    pub fn measure_times(mut self, on: bool) -> Builder {
        self.measure_times = on;
        self
    }

    /// What the workers wait in; called once, with their number. Default: one that knows no I/O.
    pub fn driver(mut self, make: impl FnOnce(usize) -> io::Result<Arc<dyn Driver>> + 'static) -> Builder {
        self.driver = Some(Box::new(make));
        self
    }

    /// What picks the next color, instead of the default (the highest priority, then whoever has waited longest): called
    /// once for each worker, with its index and on its thread, for a policy of its own. See [`Policy`] for what holds
    /// under each.
    ///
    /// ```
    /// use dapple_sched::{Runtime, SeededRandom};
    ///
    /// let runtime = Runtime::builder().policy(|worker| Box::new(SeededRandom::new(7 + worker as u64))).build()?;
    /// assert!(runtime.block_on(runtime.spawn(async {})).is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy(mut self, make: impl Fn(usize) -> Box<dyn Policy> + Send + Sync + 'static) -> Builder {
        self.policy = Some(Arc::new(make));
        self
    }

    /// How often a worker that always has something to run looks at the kernel, for events and due timers: from 10 us to 1 ms.
    /// Default: 50 us.
    ///
    /// An event that comes while all workers are busy waits for that long at most, and for the callback that runs. Each look
    /// costs a system call, about half a microsecond: one percent of the worker's time at 50 us, a tenth of that at 1 ms. The
    /// interval is kept to about 32 us, by which turns are timed. `docs/scheduler.md` has the measurements.
    ///
    /// ```
    /// use dapple_sched::Runtime;
    /// use std::time::Duration;
    ///
    /// // Computes a lot, and its few events may wait.
    /// let runtime = Runtime::builder()
    ///     .poll_interval(Duration::from_millis(1))
    ///     .time_slice(Duration::from_micros(200))
    ///     .event_share(25)
    ///     .build()?;
    /// # assert!(runtime.block_on(runtime.spawn(async {})).is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn poll_interval(mut self, interval: Duration) -> Builder {
        self.tuning.poll_interval = Some(interval);
        self
    }

    /// How long one color runs before other colors, events and timers have their turn, if it has as much to do: from 50 us to
    /// 1 ms. Default: 500 us.
    ///
    /// A callback that runs longer is not interrupted. The slice ends between two callbacks, up to 32 us late, as the clock
    /// is read no more often. Tasks without a color of their own making share stretches of 20 us, which this does not change.
    pub fn time_slice(mut self, slice: Duration) -> Builder {
        self.tuning.time_slice = Some(slice);
        self
    }

    /// How much of a worker's picks goes to colors and tasks in which something waits that came from outside (another thread,
    /// an I/O event, a timer), while others of the same priority wait as well: from 1 to 99 percent. Default: 50.
    ///
    /// A share, and not a limit: where only one of the two kinds waits, it has all picks. A small share serves a flood of
    /// requests later than the work that has begun; a large one begins it sooner. Which color or task of a kind goes is the oldest
    /// one's right in any case, and neither starves. A [`Policy`] picks in place of this.
    pub fn event_share(mut self, percent: u8) -> Builder {
        self.tuning.event_share_percent = Some(percent);
        self
    }

    /// Where the files of the system are by which quotas are known; elsewhere than at `/` in tests only.
    #[doc(hidden)]
    pub fn system_root(mut self, root: impl Into<PathBuf>) -> Builder {
        self.system_root = root.into();
        self
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .field("thread_name", &self.thread_name)
            .finish_non_exhaustive()
    }
}

/// A set of workers that run colors. Several can live in one process.
///
/// Dropping it shuts it down at once, as [`Runtime::shutdown`] with no time to wait.
///
/// ```
/// use dapple_sched::Runtime;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let answer = runtime.block_on(async { dapple_sched::spawn(async { 6 * 7 }).await });
/// assert_eq!(answer.unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
}

/// What [`Runtime::shutdown`] had to leave undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Callbacks that were dropped without having run, polls of tasks included.
    pub callbacks_dropped: u64,
    /// Tasks that were dropped before their end.
    pub tasks_dropped: u64,
    /// Workers that were still in a callback. They stop when it ends; what is queued behind it is dropped then.
    pub workers_stuck: usize,
}

impl Runtime {
    /// Settings to start from.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A reference to this runtime, to be cloned and kept.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes this the current runtime of the calling thread; see [`Handle::enter`].
    pub fn enter(&self) -> EnterGuard {
        self.handle.enter()
    }

    /// Runs a future on the calling thread until it is ready; tasks run on the workers meanwhile. This runtime is
    /// current inside.
    ///
    /// # Panics
    /// On a worker, which must not block (C9).
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Starts a task with a color of its own.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; what it yields is dropped.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Tells tasks that wait for [`Handle::closing`], waits until no task lives and nothing is queued, but no longer
    /// than `deadline`, and stops the workers. What is left then is dropped, each thing while its color is held, and
    /// reported.
    ///
    /// A worker in a callback that does not end is waited for a little longer than the deadline, and then left behind.
    ///
    /// ```
    /// use dapple_sched::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// let forever = runtime.spawn(std::future::pending::<()>());
    /// let report = runtime.shutdown(Duration::from_millis(10));
    /// assert_eq!(report.tasks_dropped, 1);
    /// assert!(forever.is_finished());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// In a process that was forked after the runtime was built: its workers are not there.
    pub fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        self.handle.shared.check_process();
        self.stop(deadline)
    }

    fn stop(&mut self, deadline: Duration) -> ShutdownReport {
        let shared = self.handle.shared.clone();
        running().retain(|runtime| !std::ptr::eq(runtime.as_ptr(), Arc::as_ptr(&shared)));
        shared.closing.announce();
        // `None`: later than there will be a clock.
        let until = Instant::now().checked_add(deadline);
        if !context::on_worker() {
            while !is_quiet(&shared) && until.is_none_or(|until| Instant::now() < until) {
                thread::sleep(QUIET_CHECK);
            }
        }
        shared.stop();
        // A worker that shuts its own runtime down cannot wait for itself.
        if self.handle.worker_index().is_none() {
            self.await_workers(&shared);
        }
        let mut report = ShutdownReport::default();
        for thread in self.threads.drain(..) {
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                report.workers_stuck += 1;
            }
        }
        // Relaxed: joining a worker's thread orders what it counted; of one left behind, a number to show.
        report.callbacks_dropped = shared.callbacks_dropped.load(Relaxed);
        report.tasks_dropped = shared.tasks_dropped.load(Relaxed);
        report
    }
}

impl Runtime {
    /// Waits for the workers to end; not for those that have shown no progress for a while.
    fn await_workers(&self, shared: &Shared) {
        let mut progress = (0, 0, 0);
        let mut until = Instant::now() + STUCK_AFTER;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            let turns = shared.slots.iter().map(|slot| slot.counters.turns()).sum::<u64>();
            // Relaxed: whether it changes is all that matters.
            let now = (turns, shared.callbacks_dropped.load(Relaxed), shared.tasks_dropped.load(Relaxed));
            if now != progress {
                progress = now;
                until = Instant::now() + STUCK_AFTER;
            }
            thread::sleep(QUIET_CHECK);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.handle.shared.is_left_behind() {
            // The threads are those of the process that has forked.
            mem::forget(mem::take(&mut self.threads));
        } else if !self.threads.is_empty() {
            self.stop(Duration::ZERO);
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.handle.workers()).finish_non_exhaustive()
    }
}

/// No task lives, and every worker sleeps with nothing linked to it.
///
/// Workers are looked at one after the other, and a chain of callbacks may hop past the look: so nothing may have run
/// between two looks that find all asleep. To see a worker asleep acquires what it has counted before, turns and tasks,
/// and whom it has posted to: who was asleep at the first look and was woken by it is not seen asleep at the second one, or
/// with another turn.
fn is_quiet(shared: &Shared) -> bool {
    let turns = || shared.slots.iter().map(|slot| slot.counters.turns()).sum::<u64>();
    let all_asleep = || shared.slots.iter().all(|slot| slot.is_asleep());
    let before = turns();
    // Relaxed: `all_asleep` acquires.
    all_asleep() && shared.tasks_live.load(Relaxed) == 0 && all_asleep() && turns() == before
}

/// More would be a mistake, and homes are 16 bits.
const WORKERS_MAX: usize = 1024;

/// How often a shutdown looks whether all is done.
const QUIET_CHECK: Duration = Duration::from_micros(200);

/// How long past the deadline a shutdown waits for workers that make no progress.
const STUCK_AFTER: Duration = Duration::from_secs(1);

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests;
