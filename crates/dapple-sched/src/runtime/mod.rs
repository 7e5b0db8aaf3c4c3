//! Runtimes: building, finding and shutting them down (this file); the data that workers share
//! (`shared`), the state of the current thread (`context`), and calls of foreign code (`driver`,
//! `foreign`, `panics`).
//!
//! Imports from below: `sync`, `memory`, `color`. This file and `shared` build a runtime from parts
//! of nearly all modules, and import those. Begin with the table in `shared`; then read `context`.

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
// REAL: a shutdown waits for threads.
use std::time::{Duration, Instant};

use crate::color::Color;
use crate::color::cell::Kind;
use crate::observe::stats::RuntimeStats;
use crate::observe::trace::{HasObserver, Observer};
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

/// Panics if the process has forked and only runtimes from before the fork are left. Called if
/// there is no other runtime.
pub(crate) fn check_process() {
    if running().iter().filter_map(Weak::upgrade).any(|shared| shared.is_left_behind()) {
        fork::refuse();
    }
}

/// A reference to one runtime. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// The current runtime: on a worker, its own; on a thread that has entered one, that one; on
    /// any other thread, the oldest of the process that still runs.
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

    /// The runtime of the calling thread: its worker's, or the entered one. `None` on other
    /// threads, even while a runtime runs: for code that works on any executor, and must not depend
    /// on a runtime that its caller does not know.
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

    /// The index of the calling thread's worker, if it belongs to this runtime.
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

    /// The number of workers, resting ones included; see [`Builder::follow_cpus`].
    pub fn workers(&self) -> usize {
        self.shared.slots.len()
    }

    /// For drivers with a standing clock: whether every worker is asleep or about to be, and no
    /// color is linked to any. Sees the calling thread's posts, even before their wake-up.
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

    /// Starts a task with a separate color.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
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

    /// Starts a task with a separate color; see [`crate::spawn_balanced`].
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
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

    /// A fresh color with the given worker as its first home. A hint for measurements: colors move.
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

    /// The default color of this runtime, whichever runtime is current at its use.
    pub fn default_color(&self) -> Color {
        // SAFETY: the default color lives as long as the runtime, which we hold.
        unsafe { Color::retain(self.shared.default_color()) }
    }

    /// The activity of the runtime since its start, and its queues.
    ///
    /// Cost: a few loads per worker and per existing color: less than 1 us for a hundred colors,
    /// and about 20 ms for a million. Keeps no worker from its work.
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

    /// Turns measuring of waiting and running times on or off, for [`Color::stats`] and
    /// [`Handle::stats`]. Cost: 64 bytes and three clock readings for each callback accepted while
    /// it is on; two readings for each closure in line, as those of
    /// [`Colored::with`](crate::Colored::with).
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

    /// Gives the runtime an observer, as [`Builder::observer`] does, which hears nothing before [`Handle::observe`]
    /// switches it on. Without a restart of the program, so that a tool can look into any of them.
    ///
    /// # Errors
    /// It has one already: a runtime keeps its observer as long as it lives.
    ///
    /// ```
    /// use dapple_sched::{Observer, TraceEvent};
    /// use std::sync::Arc;
    ///
    /// struct Nothing;
    ///
    /// impl Observer for Nothing {
    ///     fn event(&self, _event: &TraceEvent) {}
    /// }
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.handle().set_observer(Arc::new(Nothing)).expect("it has none");
    /// runtime.handle().observe(true);
    /// assert!(runtime.handle().set_observer(Arc::new(Nothing)).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_observer(&self, observer: Arc<dyn Observer>) -> Result<(), HasObserver> {
        self.shared.watch.set_observer(observer)
    }

    /// Switches the runtime's observer on or off; without one nothing changes. Callbacks accepted while it is on are
    /// reported to their end. Cost: as [`Handle::measure_times`], and that of the observer.
    pub fn observe(&self, on: bool) {
        self.shared.watch.set_observes(on);
    }

    /// Ready when [`Runtime::shutdown`] has been called: for tasks that can end by themselves.
    ///
    /// Cancel safe: dropping it loses nothing, and a new one gives the same answer.
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

/// Settings for a new runtime.
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

    /// The number of workers, from 1 to 1,024. Default: the environment variable `DAPPLE_WORKERS`,
    /// or one per processor that CPU affinity and the quotas of the control groups leave to the
    /// process, rounded up; these follow later changes, see [`Builder::follow_cpus`].
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// How many workers the runtime will have; see [`Builder::workers`]. Reads files, which takes some 50 us.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a number is asked for that is not from 1 to 1,024.
    pub fn worker_count(&self) -> io::Result<usize> {
        let asked = cpus::asked(self.workers)?;
        Ok(asked.unwrap_or_else(|| cpus::available(&self.system_root).min(WORKERS_MAX)))
    }

    /// Whether workers come and go with the processors that CPU affinity and the quotas of the
    /// control groups leave to the process. Default: only if [`Builder::workers`] and
    /// `DAPPLE_WORKERS` are not set.
    ///
    /// About once a second, while it has work, the runtime counts the processors. If there are
    /// fewer processors than workers, the last workers rest: they hand their colors over to the
    /// others, and sleep. If there are more again, they resume. There are never more workers than
    /// the runtime was built with: if a quota may grow later, set `workers` to the most that may be
    /// useful.
    ///
    /// Colors pinned to a resting worker still run there. The affinity is that of the runtime's own
    /// threads, as `taskset -a -p` or a `cpuset` sets it. At most 1,024 processors are told apart.
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

    /// The name of the workers' threads, followed by `-` and an index. Default: `dapple`.
    pub fn thread_name(mut self, prefix: impl Into<String>) -> Builder {
        self.thread_name = prefix.into();
        self
    }

    /// The handler of panics in callbacks that nothing awaits, wakers, destructors, drivers and
    /// handlers. Default: a line on standard error. It runs on the panicking thread, and must not
    /// block.
    pub fn panic_handler(mut self, handler: impl Fn(&PanicInfo<'_>) + Send + Sync + 'static) -> Builder {
        self.panic_handler = Some(Box::new(handler));
        self
    }

    /// The handler of slow callbacks, called once for each callback that has kept its worker for
    /// longer than `after` (C9): it blocks, or should be split up. Default: a line on standard
    /// error after 100 ms. It runs on a thread of its own, and is accurate to some 10 ms.
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

    /// An observer of every callback: accepted, started, ended. Default: none, at the cost of two
    /// branches a callback; an observer costs 64 bytes and three clock readings a callback more.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Builder {
        self.observer = Some(observer);
        self
    }

    /// Whether to measure exactly how long callbacks wait and run, from the start on; see
    /// [`Handle::measure_times`]. Default: no.
    pub fn measure_times(mut self, on: bool) -> Builder {
        self.measure_times = on;
        self
    }

    /// The driver, in which workers wait; `make` gets their number. Default: one without I/O.
    pub fn driver(mut self, make: impl FnOnce(usize) -> io::Result<Arc<dyn Driver>> + 'static) -> Builder {
        self.driver = Some(Box::new(make));
        self
    }

    /// The policy that picks the next color. Default: the highest priority, then the longest wait.
    /// Each worker's thread calls `make` once, with its index. See [`Policy`] for the guarantees.
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

    /// How often a worker that always has work asks the kernel for events and checks for due
    /// timers: from 10 us to 1 ms. Default: 50 us.
    ///
    /// An event that arrives while all workers are busy waits at most this long, plus the rest of
    /// the running callback. Each poll costs a system call, half a microsecond: one percent of the
    /// time at 50 us, a twentieth of that at 1 ms. The interval is exact to about 32 us. See
    /// `docs/scheduler.md`.
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

    /// How long a color with enough work runs before other colors, events and timers get a turn:
    /// from 50 us to 1 ms. Default: 500 us.
    ///
    /// A longer callback is not interrupted. The slice ends between two callbacks, up to 32 us
    /// late. Tasks that have not requested their color run in shared batches of 20 us; this setting
    /// does not change those.
    pub fn time_slice(mut self, slice: Duration) -> Builder {
        self.tuning.time_slice = Some(slice);
        self
    }

    /// The share of a worker's picks for colors and tasks with work from outside (another thread,
    /// an I/O event, a timer), while others of the same priority wait as well: from 1 to 99
    /// percent. Default: 50.
    ///
    /// A share, not a limit: if only one kind waits, it gets all picks. A small share finishes
    /// earlier work before it serves a flood of new requests; a large one begins requests sooner.
    /// Within a kind the oldest goes first, and neither kind starves. A [`Policy`] replaces this.
    pub fn event_share(mut self, percent: u8) -> Builder {
        self.tuning.event_share_percent = Some(percent);
        self
    }

    /// The root of the system's files with the quotas; differs from `/` only in tests.
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

/// A set of workers that run colors. A process can have several.
///
/// Dropping it shuts it down at once, as [`Runtime::shutdown`] does with no time to wait.
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

/// The work that [`Runtime::shutdown`] left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Callbacks dropped without having run, including polls of tasks.
    pub callbacks_dropped: u64,
    /// Tasks that were dropped before their end.
    pub tasks_dropped: u64,
    /// Workers that were still in a callback. They stop when it ends, and drop their queue then.
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

    /// Runs a future on the calling thread, with this runtime current; workers run tasks meanwhile.
    ///
    /// # Panics
    /// On a worker, which must not block (C9).
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Starts a task with a color of its own.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Shuts the runtime down. It tells tasks that await [`Handle::closing`], waits until no task
    /// lives and nothing is queued, but no longer than `deadline`, and stops the workers. Then it
    /// drops everything left, each item while its color is held, and reports it.
    ///
    /// Waits a little longer for a worker in an endless callback, and then leaves that worker
    /// behind.
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
    /// In a process that was forked after the runtime was built, because its workers do not exist
    /// there.
    pub fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        self.handle.shared.check_process();
        self.stop(deadline)
    }

    fn stop(&mut self, deadline: Duration) -> ShutdownReport {
        let shared = self.handle.shared.clone();
        running().retain(|runtime| !std::ptr::eq(runtime.as_ptr(), Arc::as_ptr(&shared)));
        shared.closing.announce();
        // `None`: beyond the range of the clock.
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
        // Relaxed: joining a worker's thread orders its counters; those of a worker left behind are
        // an estimate.
        report.callbacks_dropped = shared.callbacks_dropped.load(Relaxed);
        report.tasks_dropped = shared.tasks_dropped.load(Relaxed);
        report
    }
}

impl Runtime {
    /// Waits for the workers to end, except those that show no progress for a while.
    fn await_workers(&self, shared: &Shared) {
        let mut progress = (0, 0, 0);
        let mut until = Instant::now() + STUCK_AFTER;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            let turns = shared.slots.iter().map(|slot| slot.counters.turns()).sum::<u64>();
            // Relaxed: only a change matters.
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
            // The threads are in the parent process.
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
/// The check visits workers one after the other, and a chain of callbacks may move to workers that
/// it has already visited. So two checks that find all workers asleep must see that nothing has run
/// in between. A check that sees a worker asleep acquires what that worker did before: its counters
/// of turns and tasks, and its posts. If such a worker woke another one that was asleep at the
/// first check, then at the second check that one is awake or has counted another turn.
fn is_quiet(shared: &Shared) -> bool {
    let turns = || shared.slots.iter().map(|slot| slot.counters.turns()).sum::<u64>();
    let all_asleep = || shared.slots.iter().all(|slot| slot.is_asleep());
    let before = turns();
    // Relaxed: `all_asleep` acquires.
    all_asleep() && shared.tasks_live.load(Relaxed) == 0 && all_asleep() && turns() == before
}

/// A larger number would be a mistake, and homes have 16 bits.
const WORKERS_MAX: usize = 1024;

/// How often a shutdown checks whether everything has ended.
const QUIET_CHECK: Duration = Duration::from_micros(200);

/// How long past the deadline a shutdown waits for workers that make no progress.
const STUCK_AFTER: Duration = Duration::from_secs(1);

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests;
