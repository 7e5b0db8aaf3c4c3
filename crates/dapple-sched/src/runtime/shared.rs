//! The data that the workers of one runtime share.
//!
//! # A worker's remote word (`Slot::remote`)
//!
//! The head of the list of colors with new nodes from other threads, and also the worker's sleep
//! state. So one read-modify-write on one word decides both "is there work" and "am I asleep", and
//! no wake-up can be lost.
//!
//! | value | meaning | next |
//! |---|---|---|
//! | null | awake, nothing linked | push: color; the worker under its lock: `SLEEPING`; at shutdown: `CLOSED` |
//! | color | awake, list of linked colors | push: color; take: null; at shutdown: `CLOSED` |
//! | `SLEEPING` | the worker waits in its driver, or is about to | push: color, and unpark; kick: null, and unpark; the worker itself, awake again: null |
//! | `CLOSED` | the worker has stopped | nothing: a thread that would push drops the color's callbacks itself |
//!
//! The worker sets `SLEEPING` while it holds its own lock and has seen its run queue empty. A
//! thread that adds to the run queue of another worker does so under that lock and then kicks:
//! either the worker sees the color, or the kick sees `SLEEPING`.
//!
use std::io;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::color::cell::{ColorCell, Kind, Links};
use crate::color::node::Origin;
use crate::color::registry::Registry;
use crate::color::rights::{ColorList, Notified};
use crate::environment;
use crate::observe::described::About;
use crate::observe::named::{Names, Shown};
use crate::observe::stats::Counters;
use crate::observe::trace::Watch;
use crate::runtime::PanicHandler;
use crate::runtime::closing::Closing;
use crate::runtime::cpus::Cpus;
use crate::runtime::driver::{Barrier, Driver};
use crate::runtime::foreign;
use crate::runtime::fork;
use crate::runtime::switches;
use crate::runtime::thread_context::ThreadContext;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use crate::sync::lock::Guard;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use crate::sync::lock::OwnedLock as QueueLock;
use crate::task::TaskMemory;
use crate::task::budget::Budget;
use crate::task::light::{STRETCH_MAX, Stretch};
use crate::worker::alarm::{self, AT_REST, Alarm};
use crate::worker::cores::Cores;
use crate::worker::mark::{Help, Mark};
use crate::worker::monitor::SlowRule;
use crate::worker::run_queue::RunQueue;
use crate::worker::tuning::{Share, Tuning};

/// Settings of a runtime's builder that concern its workers.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) tuning: Tuning,
    pub(crate) cpus: Option<Cpus>,
    pub(crate) policed: bool,
    pub(crate) thread_context: Option<Arc<dyn ThreadContext>>,
    /// The workers have no threads, and there is no monitor.
    pub(crate) is_stepped: bool,
}

/// One runtime.
pub(crate) struct Shared {
    pub(crate) slots: Box<[Slot]>,
    pub(crate) driver: Arc<dyn Driver>,
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    pub(crate) pool: crate::memory::pool::Pool,
    pub(crate) registry: Registry,
    pub(crate) tasks: TaskMemory,
    pub(crate) tasks_live: AtomicUsize,
    pub(crate) closing: Closing,
    pub(crate) names: Arc<Names>,
    pub(super) panic_handler: Option<PanicHandler>,
    pub(crate) slow_rule: SlowRule,
    pub(crate) watch: Watch,
    pub(crate) tuning: Tuning,
    /// The number of workers that should be active, if workers come and go.
    pub(crate) cpus: Option<Cpus>,
    /// Whether the program has a policy of its own.
    pub(crate) policed: bool,
    /// The context around each thread.
    pub(crate) thread_context: Option<Arc<dyn ThreadContext>>,
    /// The number of light tasks that a worker takes at once.
    pub(crate) stretch_max: usize,
    pub(crate) started: Instant,
    /// See `fork`.
    pub(super) generation: u32,
    /// The default color; its handles count on the runtime as a whole.
    default_color: ColorCell,
    /// [`RUNNING`] or [`STOPPING`].
    phase: AtomicU8,
    /// Workers that have not stopped yet.
    pub(crate) workers_alive: AtomicUsize,
    /// The number of sleeping workers, and the state of the alarm: see `worker::alarm`.
    pub(crate) pulse: AtomicU32,
    /// Workers that were woken to search for work and have not found any yet.
    pub(crate) searching: AtomicU32,
    /// Searches in a row that saw waiting colors, of which none was worth moving. A hint.
    pub(crate) futile_searches: AtomicU32,
    /// Whether the machine has a core for one more worker.
    pub(crate) cores: Cores,
    /// Calls the monitor.
    pub(crate) alarm: Alarm,
    pub(crate) posts_outside: AtomicU64,
    pub(crate) callbacks_dropped: AtomicU64,
    pub(crate) tasks_dropped: AtomicU64,
    /// The next serial number of a fresh color.
    next_id: AtomicU64,
}

/// Models of the scheduler use the plain lock instead of the lock with an owner, which has a
/// separate model (`tests/loom/lock.rs`): together they have more interleavings than loom can
/// search.
#[cfg(any(dapple_loom, dapple_shuttle))]
use crate::sync::lock::UnownedLock as QueueLock;

/// One worker, as the others see it.
#[repr(align(128))]
pub(crate) struct Slot {
    queue: QueueLock<RunQueue>,
    /// See the module's table.
    remote: AtomicPtr<ColorCell>,
    /// Length of the run queue when its lock was last released by the worker; a hint for thieves.
    pub(crate) len: AtomicUsize,
    /// The right of thieves during the worker's current turn.
    pub(crate) mark: Mark,
    /// The monitor found that the last color in its queue has waited for more than a millisecond:
    /// thieves may take any half.
    pub(crate) behind: AtomicBool,
    pub(crate) running: RunningWord,
    /// The line that posted the running callback, or else the last one.
    origin: AtomicPtr<Location<'static>>,
    /// The budget left to the worker's current poll.
    pub(crate) budget: Budget,
    /// The line that made the state of the current closure, or null.
    state: AtomicPtr<Location<'static>>,
    /// The description of its current poll.
    pub(crate) about: About,
    /// The task that it polls, if it has a name.
    pub(crate) shown: Shown,
    /// Whether the worker has ended a turn since the alarm was postponed, and its number of turns
    /// then.
    pub(crate) came_round: AtomicBool,
    pub(crate) turns_then: AtomicU64,
    /// When the monitor first saw the turn that has not ended since, in nanoseconds since the
    /// runtime started; 0: none.
    pub(crate) stuck_since_ns: AtomicU64,
    /// Mean time of a turn, sampled.
    pub(crate) turn_ns: AtomicU32,
    pub(crate) counters: Counters,
    pub(crate) stretch: Stretch,
}

/// The activity of a worker, for reports: two words, because every number can be the name of a color.
pub(crate) struct RunningWord {
    kind: AtomicU8,
    /// [`crate::Color::id`] of the color with the turn.
    color_id: AtomicU64,
}

/// The activity of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Running {
    Nothing,
    /// The turn of the color with that number.
    Color(u64),
    LightTasks,
}

impl RunningWord {
    fn new() -> RunningWord {
        RunningWord { kind: AtomicU8::new(RUNS_NOTHING), color_id: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn set(&self, running: Running) {
        let kind = match running {
            Running::Nothing => RUNS_NOTHING,
            Running::Color(id) => {
                // Relaxed, and not one step: for reports on callbacks that run for long.
                self.color_id.store(id, Relaxed);
                RUNS_COLOR
            }
            Running::LightTasks => RUNS_LIGHT_TASKS,
        };
        self.kind.store(kind, Relaxed);
    }

    pub(crate) fn now(&self) -> Running {
        // Relaxed: as in `set`.
        match self.kind.load(Relaxed) {
            RUNS_COLOR => Running::Color(self.color_id.load(Relaxed)),
            RUNS_LIGHT_TASKS => Running::LightTasks,
            _ => Running::Nothing,
        }
    }
}

/// The outcome of pushing a color to a remote list.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Linked {
    Yes,
    /// The worker has stopped: the caller still owns the notification.
    Closed,
}

impl Slot {
    fn new(driver: &Arc<dyn Driver>, event_share: Share, shared: *const Shared, worker: usize) -> Slot {
        Slot {
            queue: QueueLock::new(driver, RunQueue::new(event_share, shared, worker)),
            remote: AtomicPtr::new(ptr::null_mut()),
            len: AtomicUsize::new(0),
            mark: Mark::default(),
            behind: AtomicBool::new(false),
            came_round: AtomicBool::new(false),
            turns_then: AtomicU64::new(0),
            running: RunningWord::new(),
            origin: AtomicPtr::new(ptr::null_mut()),
            budget: Budget::new(),
            state: AtomicPtr::new(ptr::null_mut()),
            about: About::default(),
            shown: Shown::default(),
            stuck_since_ns: AtomicU64::new(0),
            turn_ns: AtomicU32::new(0),
            counters: Counters::default(),
            stretch: Stretch::new(),
        }
    }

    /// The right of thieves during the worker's current turn. A hint, unless its lock is held.
    pub(crate) fn help(&self) -> Help {
        self.mark.help(|| self.counters.turns())
    }

    /// Whether the worker is in a long callback, as the monitor last saw it.
    pub(crate) fn is_overdue(&self) -> bool {
        self.mark.is_overdue(|| self.counters.turns())
    }

    /// From here on the calling thread is the worker's, until [`Slot::unbind`].
    pub(crate) fn bind(&self) {
        if !switches::shared_queue() {
            self.queue.bind();
        }
    }

    pub(crate) fn unbind(&self) {
        self.queue.unbind();
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, RunQueue> {
        self.queue.lock()
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, RunQueue>> {
        self.queue.try_lock()
    }

    /// Waits for the lock as long as a section takes, but not for a preempted holder.
    #[inline]
    pub(crate) fn try_lock_briefly(&self) -> Option<Guard<'_, RunQueue>> {
        self.queue.try_lock_briefly()
    }

    /// Notes, for reports, the line that posted the callback that is about to run.
    #[inline]
    pub(crate) fn set_origin(&self, origin: Origin) {
        // Relaxed: for reports. It points to a constant of the program.
        self.origin.store(ptr::from_ref(origin).cast_mut(), Relaxed);
    }

    /// The line that posted the running callback, or else the last one.
    pub(crate) fn origin(&self) -> Option<Origin> {
        // Relaxed: see `set_origin`.
        // SAFETY: `set_origin` stored it; it takes only references that live as long as the
        // program.
        unsafe { self.origin.load(Relaxed).as_ref() }
    }

    /// Notes, for reports, the line that made the state of the current closure; returns the former
    /// one.
    #[inline]
    pub(super) fn replace_state(&self, made_from: *const Location<'static>) -> *const Location<'static> {
        // Relaxed, and not one step: for reports, and only this worker writes it.
        let before = self.state.load(Relaxed);
        self.state.store(made_from.cast_mut(), Relaxed);
        before
    }

    /// The line that made the state of the worker's current closure.
    pub(crate) fn state_made_from(&self) -> Option<Origin> {
        // SAFETY: `replace_state` stored it; its callers pass constants of the program. Relaxed:
        // for reports.
        unsafe { self.state.load(Relaxed).as_ref() }
    }

    /// Notes, for reports, that the worker continues with a callback of another color; returns the
    /// former one.
    pub(crate) fn replace_running(&self, running: Running, origin: Option<Origin>) -> (Running, Option<Origin>) {
        // Not one step: for reports on callbacks that stay for long.
        let before = (self.running.now(), self.origin());
        self.running.set(running);
        if let Some(origin) = origin {
            self.set_origin(origin);
        }
        before
    }

    /// Whether colors are linked here.
    #[inline]
    pub(crate) fn remote_waits(&self) -> bool {
        // Relaxed: a hint; `take_remote` acquires.
        let head = self.remote.load(Relaxed);
        !head.is_null() && !is_mark(head)
    }

    pub(crate) fn is_asleep(&self) -> bool {
        // Acquire pairs with `fall_asleep`: a shutdown that sees a worker asleep sees everything
        // that it did before. For kickers and the monitor it is a hint; `kick` decides by an
        // exchange.
        self.remote.load(Acquire).addr() == SLEEPING
    }

    /// Takes all linked colors, oldest first.
    pub(crate) fn take_remote(&self) -> ColorList<Notified> {
        // Relaxed: the exchange decides.
        let mut old = self.remote.load(Relaxed);
        loop {
            if old.is_null() || is_mark(old) {
                return ColorList::new();
            }
            // Acquire pairs with the release in `link_remote`: the links are visible.
            match self.remote.compare_exchange_weak(old, ptr::null_mut(), AcqRel, Relaxed) {
                Ok(_) => return reversed(old),
                Err(now) => old = now,
            }
        }
    }

    /// Falls asleep unless a color is linked. The caller holds the lock and has seen the run queue
    /// empty.
    pub(crate) fn fall_asleep(&self, _queue: &Guard<'_, RunQueue>) -> bool {
        // AcqRel: acquires a kick's null; releases that the run queue was empty (the lock does so
        // as well), and, to `is_asleep`, everything that this worker has done.
        self.remote.compare_exchange(ptr::null_mut(), mark(SLEEPING), AcqRel, Relaxed).is_ok()
    }

    /// The worker itself is awake again, for any reason.
    pub(crate) fn wake_up(&self) {
        // Fails if another thread has woken the worker already; `take_remote` then acquires what
        // that thread wrote.
        let _ = self.remote.compare_exchange(mark(SLEEPING), ptr::null_mut(), AcqRel, Relaxed);
    }

    /// Stops taking notifications; returns the linked colors.
    pub(crate) fn close_remote(&self) -> ColorList<Notified> {
        // AcqRel: acquires the links; releases to pushers that the worker's last turn is over.
        let old = self.remote.swap(mark(CLOSED), AcqRel);
        if is_mark(old) { ColorList::new() } else { reversed(old) }
    }
}

impl Shared {
    pub(crate) fn new(
        workers: usize,
        driver: Arc<dyn Driver>,
        panic_handler: Option<PanicHandler>,
        slow_rule: SlowRule,
        watch: Watch,
        setup: Setup,
    ) -> io::Result<Arc<Shared>> {
        let Setup { tuning, cpus, policed, thread_context, is_stepped } = setup;
        let alarm = Alarm::new(is_stepped)?;
        let stretch_max = if driver.barrier().is_some_and(Barrier::pass) { STRETCH_MAX } else { 1 };
        Ok(Arc::new_cyclic(|weak| Shared {
            slots: (0..workers).map(|at| Slot::new(&driver, tuning.event_share, weak.as_ptr(), at)).collect(),
            driver,
            #[cfg(not(any(dapple_loom, dapple_shuttle)))]
            pool: crate::memory::pool::Pool::new(),
            registry: Registry::new(),
            tasks: TaskMemory::new(),
            tasks_live: AtomicUsize::new(0),
            closing: Closing::new(),
            names: Arc::default(),
            panic_handler,
            slow_rule,
            watch,
            tuning,
            cpus,
            policed,
            thread_context,
            stretch_max,
            started: environment::measured_now(),
            generation: fork::generation(),
            default_color: ColorCell::new(weak.as_ptr(), Kind::Default, 0, 0, Links::idle()),
            phase: AtomicU8::new(RUNNING),
            workers_alive: AtomicUsize::new(workers),
            pulse: AtomicU32::new(AT_REST),
            searching: AtomicU32::new(0),
            futile_searches: AtomicU32::new(0),
            cores: Cores::default(),
            alarm,
            posts_outside: AtomicU64::new(0),
            callbacks_dropped: AtomicU64::new(0),
            tasks_dropped: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
        }))
    }

    /// A count on the runtime.
    pub(crate) fn counted(&self) -> Arc<Shared> {
        // SAFETY: `new` puts it into an `Arc`, and nothing that its drop runs calls this.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    #[inline]
    pub(crate) fn default_color(&self) -> NonNull<ColorCell> {
        NonNull::from(self.default_cell())
    }

    pub(crate) fn default_cell(&self) -> &ColorCell {
        &self.default_color
    }

    pub(crate) fn fresh_id(&self) -> u64 {
        self.fresh_ids(1)
    }

    /// The first of `count` numbers that no other color has.
    pub(crate) fn fresh_ids(&self, count: u64) -> u64 {
        // Relaxed: a number.
        self.next_id.fetch_add(count, Relaxed)
    }

    /// The number of the color that a slot shows as running.
    pub(crate) fn running_id(&self, slot: &Slot) -> Option<u64> {
        match slot.running.now() {
            Running::Nothing => None,
            Running::LightTasks => self.tasks.id_at(slot.stretch.polled()),
            Running::Color(id) => Some(id),
        }
    }

    /// Locks the home of a color, which may move during the wait for the lock.
    #[inline]
    pub(crate) fn lock_home(&self, color: &ColorCell) -> (usize, Guard<'_, RunQueue>) {
        loop {
            // Relaxed: checked again under the lock, which orders.
            let home = usize::from(color.home.load(Relaxed));
            let queue = self.slots[home].lock();
            if usize::from(color.home.load(Relaxed)) == home {
                return (home, queue);
            }
        }
    }

    /// Links a color into its home's remote list. The caller has set its NOTIFIED bit (or took it
    /// off another list).
    pub(crate) fn link_remote(&self, color: NonNull<ColorCell>) -> Linked {
        // SAFETY: NOTIFIED keeps the cell alive until it is taken off the list, which cannot happen
        // before the exchange.
        let cell = unsafe { color.as_ref() };
        // Relaxed: if the home moves meanwhile, the old home passes the color on.
        let home = usize::from(cell.home.load(Relaxed));
        let slot = &self.slots[home];
        let mut old = slot.remote.load(Relaxed);
        loop {
            if old.addr() == CLOSED {
                return Linked::Closed;
            }
            let next = if old.addr() == SLEEPING { ptr::null_mut() } else { old };
            cell.remote_next.store(next, Relaxed);
            // Release pairs with `take_remote`. Acquire: the replaced SLEEPING was set after the
            // run queue was seen empty; this reads nothing of that, but unpark comes after it.
            match slot.remote.compare_exchange_weak(old, color.as_ptr(), AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old.addr() == SLEEPING {
            self.unpark(home);
        }
        Linked::Yes
    }

    /// Wakes a worker if it sleeps. True if it slept, and this call woke it.
    pub(crate) fn kick(&self, worker: usize) -> bool {
        let slot = &self.slots[worker];
        // AcqRel: a worker that sees the word changed sees everything that the caller queued for
        // it.
        let woken = slot.remote.compare_exchange(mark(SLEEPING), ptr::null_mut(), AcqRel, Relaxed).is_ok();
        if woken {
            self.unpark(worker);
        }
        woken
    }

    /// Unparks a worker, and contains a panic of the driver, because the caller, perhaps the
    /// monitor, must continue.
    fn unpark(&self, worker: usize) {
        foreign::contain_for(self, || self.driver.unpark(worker));
    }

    /// Wakes one sleeping worker to look for work. False if all that sleep also rest.
    pub(crate) fn kick_any(&self, except: usize) -> bool {
        (0..self.active()).any(|worker| worker != except && self.slots[worker].is_asleep() && self.kick(worker))
    }

    /// Workers that sleep and could be woken to help.
    pub(crate) fn sleepers(&self) -> usize {
        // Relaxed: a hint; an exchange decides which worker is woken.
        alarm::helpers(self.pulse.load(Relaxed)) as usize
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire pairs with the release in `stop`.
        self.phase.load(Acquire) == STOPPING
    }

    /// Tells all workers to stop after their current turn.
    pub(crate) fn stop(&self) {
        // Release pairs with `is_stopping`.
        self.phase.store(STOPPING, Release);
        for worker in 0..self.slots.len() {
            // A worker checks the phase under its lock before it sleeps: either the check comes
            // after this and sees the phase, or the kick finds the worker's SLEEPING.
            drop(self.slots[worker].lock());
            self.kick(worker);
        }
        self.alarm.ring();
    }

    /// Parks a worker in the driver.
    pub(crate) fn park(&self, worker: usize, timeout: Option<Duration>) {
        self.driver.park(worker, timeout);
    }
}

/// The colors of a remote list that was taken off, in the order in which they were linked.
fn reversed(head: *mut ColorCell) -> ColorList<Notified> {
    // SAFETY: `link_remote` linked the list, and its links belong to the taker now.
    let mut rest = unsafe { ColorList::from_raw(head) };
    let mut done = ColorList::new();
    while let Some(notified) = rest.pop() {
        done.push(notified);
    }
    done
}

fn mark(addr: usize) -> *mut ColorCell {
    ptr::without_provenance_mut(addr)
}

fn is_mark(head: *mut ColorCell) -> bool {
    matches!(head.addr(), SLEEPING | CLOSED)
}

const SLEEPING: usize = 1;
const CLOSED: usize = 2;

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;

const RUNS_NOTHING: u8 = 0;
const RUNS_COLOR: u8 = 1;
const RUNS_LIGHT_TASKS: u8 = 2;
