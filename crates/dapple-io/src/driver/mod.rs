//! The epoll driver, in which a worker without work waits; with io_uring for files.

use std::fmt;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::RawWakerVTable;
use std::time::{Duration, Instant};

use dapple_sched::{Barrier, Driver, Membarrier, Outside, TaskWait};

use crate::blocking::Pool;
use crate::companion::Registry;
use crate::descriptors::Descriptors;
use crate::environment::{self, Environment, Network};
#[cfg(feature = "dns")]
use crate::lock::Mutex;
#[cfg(feature = "dns")]
use crate::net::Resolver;
use crate::signal::Hub;
use clock::Clock;
use reactor::Reactor;
use slot::Slot;
use standing::Standing;
use thread::Thread;
use uring::Limits;

pub(crate) mod clock;
pub(crate) mod current;
mod duty;
mod entry;
#[cfg(not(dapple_loom))]
mod poller;
#[cfg(dapple_loom)]
#[path = "model_poller.rs"]
mod poller;
mod reactor;
pub(crate) mod slot;
mod source;
pub(crate) mod standing;
mod table;
mod thread;
mod timer;
mod timers;
pub(crate) mod uring;
mod wait;
mod wheel;

pub(crate) use entry::{Direction, Entry, Waiter};
pub(crate) use source::{Descriptor, Source, Step};
pub use standing::ClockDump;
pub(crate) use timer::Timer;
#[cfg(dapple_loom)]
pub(crate) use timers::end_of_model;

/// Limits of the driver.
///
/// ```
/// let mut config = dapple_io::Config::default();
/// config.blocking_threads_max = 8;
/// let runtime = dapple_io::runtime_builder_with(config).workers(1).build()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The most threads of the blocking pool, at least 1. Default: 64.
    pub blocking_threads_max: usize,
    /// The most functions that may wait for a thread of the blocking pool; beyond it callers wait.
    /// Default: 4096.
    pub blocking_queue_max: usize,
    /// How long an idle thread of the blocking pool stays. Default: 10 s.
    pub blocking_idle_timeout: Duration,
    /// Whether calls on files go through io_uring if the kernel has it. Otherwise, and with
    /// `DAPPLE_IO_URING=off` in the environment, they go through the blocking pool, with the same
    /// results. Default: `true`.
    pub io_uring: bool,
    /// The most calls on files from one worker that the kernel has at the same time, 1 to 4096;
    /// more wait for their turn. Default: 128.
    pub file_calls_max: usize,
    /// For tests: a standing clock, which jumps to the next deadline when everything waits. See
    /// [`time`](crate::time#a-clock-that-stands-still). Default: `false`.
    pub standing_clock: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            blocking_threads_max: 64,
            blocking_queue_max: 4096,
            blocking_idle_timeout: Duration::from_secs(10),
            io_uring: true,
            file_calls_max: 128,
            standing_clock: false,
        }
    }
}

/// Waits in epoll, and keeps each worker's timers in a wheel of its own.
///
/// Pass it to [`dapple_sched::Builder::driver`], or use
/// [`runtime_builder`](crate::runtime_builder). The types of this crate find it through the runtime
/// of the thread that makes them: a worker's own, one that was entered, or the oldest that runs.
///
/// Up to eight workers share one epoll instance, and one of them at a time waits there: an event
/// wakes the worker that also takes the next one, and the others sleep until there is work for
/// them. Any worker may poll the kernel for any other, so a worker in a long callback delays no
/// events (C6).
pub struct EpollDriver {
    reactors: Box<[Arc<Reactor>]>,
    slots: Box<[Arc<Slot>]>,
    shared: Arc<Shared>,
    /// The threads of the workers that have started.
    threads: Box<[OnceLock<Thread>]>,
    /// Spreads the timers of threads that are not workers.
    next_slot: AtomicUsize,
}

/// The data that the slots share. It must not refer to them, or neither would ever be freed.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) descriptors: Descriptors,
    pub(crate) pool: Pool,
    pub(crate) signals: Hub,
    /// Event loops of the program's own, each on its thread.
    pub(crate) companions: Registry,
    /// Made at its first use, or set by the program.
    #[cfg(feature = "dns")]
    pub(crate) resolver: Mutex<Option<Resolver>>,
    /// `None` if the program sends files to the pool.
    pub(crate) ring_limits: Option<Limits>,
    /// Replaces `clock` and the wheels, for tests.
    pub(crate) standing: Option<Standing>,
    /// In place of the kernel. Its time is `standing`, which it moves.
    pub(crate) environment: Option<Arc<dyn Environment>>,
    /// Has the sockets in place of the kernel; the environment, where there is one.
    pub(crate) network: Option<Arc<dyn Network>>,
}

impl Shared {
    /// Tells a standing clock that an answer may be in transit.
    #[inline]
    pub(crate) fn note_io(&self) {
        if let Some(standing) = &self.standing {
            standing.note_io();
        }
    }
}

impl EpollDriver {
    /// A driver for this many workers.
    ///
    /// # Errors
    ///
    /// Errors of the kernel when it has no descriptors left: every eight workers need two.
    pub fn new(workers: usize) -> io::Result<Arc<Self>> {
        Self::with_config(workers, Config::default())
    }

    /// A driver with the program's limits.
    ///
    /// # Errors
    ///
    /// As [`EpollDriver::new`].
    pub fn with_config(workers: usize, config: Config) -> io::Result<Arc<Self>> {
        Self::make(workers, config, None, None)
    }

    /// A driver with the sockets of a network in place of the kernel's.
    pub(crate) fn on_network(workers: usize, config: Config, network: Arc<dyn Network>) -> io::Result<Arc<Self>> {
        Self::make(workers, config, None, Some(network))
    }

    /// A driver of stepped workers that asks an environment in place of the kernel.
    pub(crate) fn in_environment(workers: usize, environment: Arc<dyn Environment>) -> io::Result<Arc<Self>> {
        if !dapple_sched::environment::is_simulated() {
            let advice = "a runtime in an environment is built on a thread that is simulated";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, advice));
        }
        let config = Config { standing_clock: true, io_uring: false, ..Config::default() };
        Self::make(workers, config, Some(environment.clone()), Some(environment))
    }

    fn make(
        workers: usize,
        config: Config,
        environment: Option<Arc<dyn Environment>>,
        network: Option<Arc<dyn Network>>,
    ) -> io::Result<Arc<Self>> {
        if network.is_some() {
            environment::note_network();
        }
        let shared = Arc::new(Shared {
            clock: Clock,
            descriptors: Descriptors::default(),
            pool: Pool::new(config),
            signals: Hub::default(),
            companions: Registry::default(),
            #[cfg(feature = "dns")]
            resolver: Mutex::default(),
            ring_limits: ring_limits(&config),
            standing: config.standing_clock.then(|| Standing::new(workers, environment.is_some())),
            environment,
            network,
        });
        // A standing clock counts the workers that wait in the kernel, so each waits on its own.
        let together = if shared.standing.is_some() { 1 } else { WORKERS_MAX };
        let (mut reactors, mut slots) = (Vec::new(), Vec::new());
        for first in (0..workers).step_by(together) {
            let reactor = Reactor::new(shared.clone())?;
            let members = (0..(workers - first).min(together) as u32).map(|member| Slot::new(reactor.clone(), member));
            let members = members.collect::<io::Result<Vec<_>>>()?;
            reactor.set_members(&members);
            slots.extend(members);
            reactors.push(reactor);
        }
        if let Some(standing) = &shared.standing {
            standing.set_slots(&slots);
        }
        let threads = (0..workers).map(|_| OnceLock::new()).collect();
        Ok(Arc::new(EpollDriver {
            reactors: reactors.into(),
            slots: slots.into(),
            shared,
            threads,
            next_slot: AtomicUsize::new(0),
        }))
    }

    /// The state of a standing clock, and the reasons why it does not jump; `None` for the real
    /// clock. To find the cause of a hang.
    pub fn clock_dump(&self) -> Option<ClockDump> {
        self.shared.standing.as_ref().map(Standing::dump)
    }

    /// When the next timer of a runtime in an [environment](crate::environment) is due; `None` without timers, and on the kernel.
    pub fn next_timer(&self) -> Option<Instant> {
        self.shared.environment.as_ref()?;
        self.shared.standing.as_ref()?.next_due()
    }

    /// Number of registered descriptors, of all workers.
    ///
    /// ```
    /// use dapple_io::{EpollDriver, pipe};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// let _entered = runtime.enter();
    /// let ends = pipe::pipe()?;
    /// let driver = runtime.handle().driver::<EpollDriver>().expect("the builder put it in");
    /// assert_eq!(driver.source_count(), 2);
    /// drop(ends);
    /// assert_eq!(driver.source_count(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn source_count(&self) -> usize {
        self.reactors.iter().map(|reactor| reactor.load()).sum()
    }

    #[cfg(dapple_loom)]
    pub(crate) fn slot(&self, worker: usize) -> &Arc<Slot> {
        &self.slots[worker]
    }

    /// The reactor with the fewest sources; among equals that of `preferred`.
    fn least_loaded(&self, preferred: Option<usize>) -> &Arc<Reactor> {
        let mut best = self.slots[preferred.unwrap_or(0)].reactor();
        let mut load = best.load();
        for reactor in &self.reactors {
            if reactor.load() < load {
                (best, load) = (reactor, reactor.load());
            }
        }
        best
    }

    /// The current worker's slot, or another one for threads that are not workers.
    fn slot_for_timer(&self, worker: Option<usize>) -> &Arc<Slot> {
        // Relaxed: it only spreads timers.
        let index = worker.unwrap_or_else(|| self.next_slot.fetch_add(1, Ordering::Relaxed) % self.slots.len());
        &self.slots[index]
    }
}

impl Driver for EpollDriver {
    fn attach(&self, worker: usize) {
        current::own(self.slots[worker].clone());
        if let Some(thread) = Thread::current() {
            _ = self.threads[worker].set(thread);
        }
    }

    fn park(&self, worker: usize, timeout: Option<Duration>) {
        self.slots[worker].park(timeout);
    }

    fn is_stepped(&self) -> bool {
        self.shared.environment.is_some()
    }

    fn poll(&self, worker: usize) -> bool {
        if let Some(environment) = &self.shared.environment {
            let fired = self.shared.standing.as_ref().is_some_and(Standing::fire);
            return environment.dispatch() || fired;
        }
        let slot = &self.slots[worker];
        current::with_own_slot(|own| slot.poll(own.filter(|own| !ptr::eq(*own, &**slot))))
    }

    fn poll_shared(&self, worker: usize) -> bool {
        self.shared.environment.is_none() && self.slots[worker].reactor().poll_shared()
    }

    fn rest(&self, worker: usize, active: usize) {
        self.slots[worker].rest(worker, active);
    }

    fn unpark(&self, worker: usize) {
        if self.shared.environment.is_some() {
            // Its word says that it is awake, so it will be stepped.
            return;
        }
        self.slots[worker].unpark();
    }

    fn barrier(&self) -> Option<&dyn Barrier> {
        Some(&Membarrier)
    }

    fn cpu_time(&self, worker: usize) -> Option<Duration> {
        self.threads[worker].get()?.cpu_time()
    }

    fn is_runnable(&self, worker: usize) -> Option<bool> {
        self.threads[worker].get()?.is_runnable()
    }

    fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        for entry in self.reactors.iter().flat_map(|reactor| reactor.entries()) {
            entry.each_waiter(visit);
        }
        for slot in &self.slots {
            slot.each_waiter(visit);
        }
    }

    fn outside(&self, news: Outside) {
        if let Some(standing) = &self.shared.standing {
            standing.outside(news);
        }
    }

    fn shutdown(&self) {
        if let Some(standing) = &self.shared.standing {
            standing.shut_down();
        }
        self.shared.signals.shut_down();
        for reactor in &self.reactors {
            reactor.shut_down();
        }
        for slot in &self.slots {
            slot.shut_down();
        }
        self.shared.pool.shut_down();
        self.shared.companions.shut_down();
    }
}

impl Drop for EpollDriver {
    /// For a driver without a runtime; otherwise nothing is left to do.
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for EpollDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<_> = self.slots.iter().map(|slot| slot.ring().map(|ring| ring.load())).collect();
        f.debug_struct("EpollDriver")
            .field("sources", &self.source_count())
            .field("file_calls_in_flight_and_waiting_per_worker", &calls)
            .finish_non_exhaustive()
    }
}

fn ring_limits(config: &Config) -> Option<Limits> {
    let limits = Limits {
        in_flight_max: config.file_calls_max.clamp(1, 4096),
        threads_max: u32::try_from(config.blocking_threads_max.max(1)).unwrap_or(u32::MAX),
    };
    (config.io_uring && !uring::is_switched_off()).then_some(limits)
}

/// The result of every operation after its runtime has shut down.
pub(crate) fn shut_down_error() -> io::Error {
    io::Error::other("the Dapple runtime of this source has shut down")
}

/// The most workers that wait in one epoll instance. More would contend for its locks.
pub(crate) const WORKERS_MAX: usize = 8;
