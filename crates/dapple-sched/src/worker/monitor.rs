//! Keeps C6, nobody waits beside an idle core, and reports callbacks that run too long (C9).
//!
//! A worker in a long callback cannot look around, and those that sleep must not tick, so one thread watches. While some
//! workers run and some sleep, it looks a little more often than every millisecond. A worker that has not ended a turn since the last look is
//! marked overdue (`mark`), and a sleeper is woken to take over its colors, news, events and timers; one whose queue will take
//! longer than a millisecond is marked as behind, and a sleeper takes half of it, whether that pays or not. While all workers run there is nobody to help, and it looks now and then, for
//! callbacks that do not end. While all sleep it sleeps without a time-out. A single worker can be helped by no other: there it
//! looks now and then only, and is not called when the worker wakes more often than that.
//!
//! # Long, blocked, or preempted
//!
//! On a loaded machine a worker may end no turn because other threads have its processor. Colors that talk to each other are
//! then better off where they are: the worker goes on in a few milliseconds, and apart they would run at a third of the speed.
//! So the monitor asks the driver before it marks a worker overdue:
//!
//! | its thread, since a turn was last seen to end | so it is |
//! |---|---|
//! | has used as much processor time as most of a look takes | in a long callback |
//! | has not, and waits in a system call | blocked in a callback: it uses no processor time, and may do so for as long as it likes |
//! | has not, and is ready to run | preempted: a sleeper takes what is worth moving, its events and its timers |
//! | the same for [`PREEMPTED_LOOKS_MAX`] looks | left without a processor: as good as blocked |
//!
//! Processor time alone cannot tell the second from the third. Nor can the kernel's count of the time that a thread has
//! waited for a processor (`schedstat`), which grows only once the wait is over, nor its count of processor time there, which
//! for a thread that runs is as old as the last tick. Where the driver knows nothing, a worker that ends no turn is overdue.

use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::runtime::foreign;
use crate::runtime::shared::{MONITOR_ASLEEP, Running, SLEEPERS, Shared, Slot};
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::sync::{park, park_timeout};

/// The way to the monitor's thread.
pub(crate) struct Monitor {
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// A callback that has been running for too long; see [`crate::Builder::slow_callback`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowCallback {
    /// The color it runs in, as [`crate::Color::id`] tells it.
    pub color_id: u64,
    /// The worker that it keeps.
    pub worker: usize,
    /// The line that posted it; of a task, the line that spawned it.
    pub posted_from: &'static Location<'static>,
    /// The name of the task, where it is one that was started by [`crate::named`].
    pub name: Option<Arc<str>>,
    /// What its poll is about, where that was told by [`crate::described`]: of a handler of `dapple-serve`, the method and the
    /// path.
    pub about: Option<String>,
    /// The line that made the state in whose closure it is, where it is in one.
    pub state: Option<&'static Location<'static>>,
    /// How long it has been running at least.
    pub running_for: Duration,
    /// What keeps it.
    pub slowness: Slowness,
}

/// Why a callback does not end; see [`SlowCallback`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Slowness {
    /// No await has returned: it computes, or it waits for something in a way that blocks the worker.
    Blocks,
    /// Awaits return, and all of them were ready at once: the task does not wait, and never returns to its worker. It is
    /// [`unconstrained`](crate::unconstrained), or what it does between two awaits is long.
    NeverYields,
}

impl SlowCallback {
    /// The report, as it is printed where the program has no handler of its own.
    fn text(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" (task {name:?})")).unwrap_or_default();
        let what = match &self.about {
            Some(about) => format!("{about}, in color {}{name},", self.color_id),
            None => format!("a callback of color {}{name}, posted from {},", self.color_id, self.posted_from),
        };
        let state = self.state.map(|line| format!(", and is in the state made at {line}")).unwrap_or_default();
        let why = match self.slowness {
            Slowness::Blocks => {
                "it blocks, as no await has returned: give blocking calls to the blocking pool, and split long work up"
            }
            Slowness::NeverYields => {
                "it never yields, as all its awaits are ready at once: await `yield_now` now and then, and split long work up"
            }
        };
        format!("{what} has kept worker {} for {} ms{state}; {why}", self.worker, self.running_for.as_millis())
    }
}

/// What is called for each of them.
pub(crate) type SlowHandler = Box<dyn Fn(&SlowCallback) + Send + Sync>;

/// When a callback counts as slow, and who hears of it.
pub(crate) struct SlowRule {
    pub(crate) after: Duration,
    pub(crate) handler: SlowHandler,
}

impl Default for SlowRule {
    fn default() -> Self {
        SlowRule { after: Duration::from_millis(100), handler: Box::new(print_slow) }
    }
}

fn print_slow(slow: &SlowCallback) {
    eprintln!("dapple: {}", slow.text());
}

/// What the monitor remembers of a worker between two looks.
#[derive(Clone, Copy, Default)]
struct Seen {
    turns: u64,
    /// Since when no turn has ended, and whether that was reported.
    stuck_since: Option<Instant>,
    /// What was left of the budget then.
    budget_left: i64,
    reported: bool,
    /// The processor time of its thread when a turn was last seen to end; `None`: not asked yet, or not known.
    cpu_time: Option<Duration>,
    /// Looks in a row at which the worker was preempted.
    preempted: u32,
    /// Looks in a row at which the worker had colors waiting.
    backlog: u32,
    /// Looks to let pass before a sleeper is woken for a mere backlog again.
    pause: u32,
    /// The last pause; doubles while waking does not help.
    pause_last: u32,
}

impl Seen {
    /// The callback that the worker was in has ended.
    fn forget_callback(&mut self, slot: &Slot) {
        if self.stuck_since.take().is_some() {
            // Relaxed: a number to show.
            slot.stuck_since_ns.store(0, Relaxed);
        }
        self.reported = false;
    }
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor { wake: OnceLock::new() }
    }

    /// Called once, by the thread that started the monitor's: `wake` unparks that.
    pub(crate) fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    #[cold]
    pub(super) fn wake_if_asleep(&self, pulse: &AtomicU32) {
        // AcqRel pairs with the exchange in `run`: one of several callers takes the bit, and wakes.
        if pulse.fetch_and(!MONITOR_ASLEEP, AcqRel) & MONITOR_ASLEEP != 0 {
            self.wake();
        }
    }
}

/// The monitor's thread. It does not keep the runtime alive.
pub(crate) fn run(shared: Weak<Shared>) {
    let mut seen = Vec::new();
    let (mut quiet_looks, mut was_called) = (0, false);
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_stopping() {
            return;
        }
        seen.resize(shared.slots.len(), Seen::default());
        let workers = shared.slots.len();
        // Relaxed: the exchange below decides.
        let pulse = shared.pulse.load(Relaxed);
        let asleep = (pulse & SLEEPERS) as usize;
        if asleep < workers {
            look(&shared, &mut seen, asleep > 0);
        }
        let alone = workers == 1;
        quiet_looks = if (1..workers).contains(&asleep) { 0 } else { quiet_looks + 1 };
        // AcqRel pairs with `fell_asleep`, `woke_up` and `wake_if_asleep`: with the number of sleepers unchanged the bit is
        // set, or somebody has changed it, and the next look is soon.
        // A few fast looks more than needed: a load of short bursts is not to wake this thread for each. With the bit
        // set, the next worker that falls asleep or wakes calls.
        let slow = (quiet_looks > QUIET_LOOKS || alone)
            && (!alone || asleep == workers && !was_called)
            && shared.pulse.compare_exchange(pulse, pulse | MONITOR_ASLEEP, AcqRel, Relaxed).is_ok();
        // So a single worker calls it once in a while at most.
        was_called = slow && asleep == workers;
        drop(shared);
        match slow {
            true if asleep == workers => park(),
            true => park_timeout(SLOW_LOOK_EVERY),
            false if alone => park_timeout(SLOW_LOOK_EVERY),
            false => park_timeout(LOOK_EVERY),
        }
    }
}

/// Looks at every worker; `help`: somebody sleeps who could help.
fn look(shared: &Shared, seen: &mut [Seen], help: bool) {
    for (worker, seen) in seen.iter_mut().enumerate() {
        let slot = &shared.slots[worker];
        let turns = slot.counters.turns();
        let ended = turns - seen.turns;
        seen.turns = turns;
        if slot.is_asleep() {
            seen.forget_callback(slot);
            slot.mark.clear();
            *seen = Seen { turns, ..Seen::default() };
            continue;
        }
        watch_callback(shared, worker, seen, ended);
        // Relaxed here and below: hints; who is woken looks under the locks.
        let waiting = slot.len.load(Relaxed) as u64;
        if !help || waiting == 0 {
            seen.backlog = 0;
        }
        let in_time = ended > 0 && waiting <= ended;
        if in_time {
            slot.behind.store(false, Relaxed);
        }
        let preempted = is_preempted(shared, worker, seen, ended, help && !in_time);
        if help && !in_time && !preempted {
            if ended == 0 {
                slot.mark.set_overdue(turns);
            } else {
                // More colors than it gets through in time: the last one waits too long.
                slot.behind.store(true, Relaxed);
            }
            shared.kick_any(worker);
        } else if help && ended == 0 {
            slot.mark.set_preempted(turns);
            shared.kick_any(worker);
        } else if help && waiting > 0 {
            seen.backlog += 1;
            offer_help(shared, worker, seen);
        }
    }
}

/// Whether the worker would have done more if other threads had not had its processor. `asked`: it matters.
fn is_preempted(shared: &Shared, worker: usize, seen: &mut Seen, ended: u64, asked: bool) -> bool {
    let now = shared.driver.cpu_time(worker);
    let used = now.map(|now| now.saturating_sub(seen.cpu_time.unwrap_or(now)));
    if ended > 0 || seen.cpu_time.is_none() {
        seen.cpu_time = now;
    }
    let waits_for_processor =
        asked && used.is_some_and(|used| used < CPU_TIME_OF_LOOK) && shared.driver.is_runnable(worker) == Some(true);
    seen.preempted = if waits_for_processor { seen.preempted + 1 } else { 0 };
    (1..=PREEMPTED_LOOKS_MAX).contains(&seen.preempted)
}

/// Reports a callback once that has run for too long.
fn watch_callback(shared: &Shared, worker: usize, seen: &mut Seen, ended: u64) {
    let slot = &shared.slots[worker];
    // Relaxed: for reports, of callbacks that have been there for long.
    let runs = slot.running.now() != Running::Nothing;
    let Some(posted_from) = slot.origin().filter(|_| ended == 0 && runs) else {
        return seen.forget_callback(slot);
    };
    let budget_left = slot.budget.left();
    if seen.stuck_since.is_none() {
        seen.budget_left = budget_left;
    }
    let since = *seen.stuck_since.get_or_insert_with(|| {
        let now = Instant::now();
        // Relaxed: a number to show. At least 1, as 0 means none.
        slot.stuck_since_ns.store(((now - shared.started).as_nanos() as u64).max(1), Relaxed);
        now
    });
    let running_for = since.elapsed();
    if running_for >= shared.slow_rule.after
        && !seen.reported
        && let Some(color_id) = shared.running_id(slot)
    {
        seen.reported = true;
        let slowness = if budget_left == seen.budget_left { Slowness::Blocks } else { Slowness::NeverYields };
        let slow = SlowCallback {
            color_id,
            worker,
            posted_from,
            name: slot.shown.name(),
            about: slot.about.text(),
            state: slot.state_made_from(),
            running_for,
            slowness,
        };
        // A handler that panics must not end the watch.
        foreign::contain_for(shared, || (shared.slow_rule.handler)(&slow));
    }
}

/// A worker that always has a color waiting could share, if sharing pays: a sleeper is woken to find out, less and
/// less often while it does not stay awake.
fn offer_help(shared: &Shared, worker: usize, seen: &mut Seen) {
    if seen.pause > 0 {
        seen.pause -= 1;
    } else if seen.backlog >= 2 {
        seen.pause_last = (seen.pause_last * 2).clamp(1, PAUSE_MAX);
        seen.pause = seen.pause_last;
        shared.kick_any(worker);
    }
}

/// How often it looks while some workers run and some sleep. A look costs 30 us of processor time where a wake-up does, so it
/// is as seldom as the two milliseconds of C6 allow: a callback that begins right after a look is seen not to end at the second
/// look after that.
const LOOK_EVERY: Duration = Duration::from_micros(850);

/// A worker that has had the processor for most of a look has used so much of its time.
const CPU_TIME_OF_LOOK: Duration = Duration::from_micros(570);

/// A worker that is preempted for longer (some 20 ms) is helped like one that is blocked. The kernel lets others run for three
/// or four milliseconds at a time.
const PREEMPTED_LOOKS_MAX: u32 = 24;

/// How often it looks while all workers run.
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks without need before the monitor slows down.
const QUIET_LOOKS: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 0 } else { 16 };

/// At most this many looks (some 60 ms) between two offers of help.
const PAUSE_MAX: u32 = 64;
