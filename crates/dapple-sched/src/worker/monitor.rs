//! The monitor, which keeps C6 (no color waits while a worker sleeps), and reports callbacks that
//! run too long (C9).
//!
//! The thread sleeps until the alarm calls it (`alarm`): some worker that is awake has not ended a
//! turn. Then it checks all of them. It marks a worker that has ended no turn since its last mark
//! of progress as overdue (`mark`), and wakes a sleeper to take over its colors, notifications,
//! events and timers. If a worker has ended a turn, the monitor checks it again shortly after. If a
//! worker's queue will take too long, it marks the worker as behind, and a sleeper takes half of
//! the queue, even where stealing would not pay. While all workers run, or there is only one, none
//! could help, and the monitor only checks for endless callbacks.
//!
//! # Long, blocked, or preempted
//!
//! On a loaded machine a worker may end no turn because other threads have its processor. In that
//! case, colors that post to each other should stay together: the worker continues in a few
//! milliseconds, and if the colors were on different workers, they would run at a third of the
//! speed. So the monitor asks the driver before it marks a worker overdue:
//!
//! | its thread, since a turn was last seen to end | so the worker is |
//! |---|---|
//! | has used at least two thirds of the time that has passed | in a long callback |
//! | has not, and waits in a system call | blocked in a callback: it uses no processor time, perhaps for long |
//! | has not, and is ready to run | preempted: a sleeper takes the colors worth moving, its events and its timers |
//! | the same for [`PREEMPTED_LOOKS_MAX`] looks | without a processor: counts as blocked |
//!
//! Processor time alone cannot distinguish the second case from the third. Two counts of the kernel
//! do not help either. The time that a thread has waited for a processor (`schedstat`) grows only
//! after the wait; and the processor time in it is, for a running thread, as old as the last tick.
//! If the driver knows nothing, a worker that ends no turn is overdue.

use std::panic::Location;
use std::sync::{Arc, Weak};
// REAL: the monitor is a thread, and watches threads.
use std::time::{Duration, Instant};

use crate::runtime::foreign;
use crate::runtime::shared::{Running, Shared, Slot};
use crate::sync::atomic::Ordering::*;
use crate::worker::alarm::Timer;

/// A callback that has been running for too long; see [`crate::Builder::slow_callback`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowCallback {
    /// The color it runs in, as [`crate::Color::id`] tells it.
    pub color_id: u64,
    /// The worker that it keeps.
    pub worker: usize,
    /// The line that posted it, or that spawned the task.
    pub posted_from: &'static Location<'static>,
    /// The name of the task, if [`crate::named`] started it.
    pub name: Option<Arc<str>>,
    /// The description of its poll, if [`crate::described`] gave one: for a handler of
    /// `dapple-serve`, the method and the path.
    pub about: Option<String>,
    /// The line that made the state, if it is in a closure on one.
    pub state: Option<&'static Location<'static>>,
    /// The least time for which it has been running.
    pub running_for: Duration,
    /// The reason why it does not end.
    pub slowness: Slowness,
}

/// The reason why a callback does not end; see [`SlowCallback`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Slowness {
    /// No await has returned: it computes, or it waits in a way that blocks the worker.
    Blocks,
    /// Awaits return, but all of them were ready at once: the task never returns to its worker. It
    /// is [`unconstrained`](crate::unconstrained), or takes long between two awaits.
    NeverYields,
}

impl SlowCallback {
    /// The text of the report, for a program without a handler of its own.
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

/// The function called for each of them.
pub(crate) type SlowHandler = Box<dyn Fn(&SlowCallback) + Send + Sync>;

/// The limit for slow callbacks, and their handler.
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

/// The monitor's notes about a worker between two checks.
#[derive(Clone, Copy, Default)]
struct Seen {
    turns: u64,
    /// The time since which no turn has ended, and whether that was reported.
    stuck_since: Option<Instant>,
    /// The rest of the budget at that time.
    budget_left: i64,
    reported: bool,
    /// The processor time of its thread at the first question in this turn, and the time of that
    /// question.
    cpu_time: Option<(Duration, Instant)>,
    /// The number of checks in a row at which the worker was preempted.
    preempted: u32,
}

impl Seen {
    fn note_cpu_time(&mut self, shared: &Shared, worker: usize) {
        self.cpu_time = shared.driver.cpu_time(worker).map(|used| (used, Instant::now()));
    }

    /// Forgets the worker's callback, which has ended.
    fn forget_callback(&mut self, slot: &Slot) {
        if self.stuck_since.take().is_some() {
            // Relaxed: for statistics.
            slot.stuck_since_ns.store(0, Relaxed);
        }
        self.reported = false;
    }
}

/// The body of the monitor's thread, which waits for the timer of the alarm. Does not keep the
/// runtime alive.
pub(crate) fn run(shared: Weak<Shared>, timer: Arc<Timer>) {
    let mut seen = Vec::new();
    ask_for_short_slices();
    loop {
        timer.wait();
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_stopping() {
            return;
        }
        if shared.rest_alarm() {
            continue;
        }
        shared.follow_cpus();
        seen.resize_with(shared.slots.len(), Seen::default);
        let soon = look(&shared, &mut seen, shared.sleepers() > 0);
        shared.set_alarm(soon);
    }
}

/// The kernel wakes this thread on the processor that set the timer, which is that of the worker in
/// a long callback. With short slices it runs there at once, and not after the worker's slice of
/// some milliseconds (Linux 6.12; before, this changes nothing).
fn ask_for_short_slices() {
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    {
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        // SAFETY: zeros are a valid value of this plain structure of the kernel.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most `size` bytes to `attr`, and reads as many; 0 is the
        // calling thread. A refusal changes nothing.
        unsafe {
            if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) == 0 {
                attr.sched_runtime = 100_000;
                libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
            }
        }
    }
}

/// Checks every worker; `help`: a sleeping worker could help. Returns whether to check again soon,
/// because one check cannot tell what a worker does.
fn look(shared: &Shared, seen: &mut [Seen], help: bool) -> bool {
    let mut soon = false;
    for (worker, seen) in seen.iter_mut().enumerate() {
        let slot = &shared.slots[worker];
        let turns = slot.counters.turns();
        // Relaxed: written when the alarm was postponed; if the value is old, too many turns are
        // counted.
        let ended = turns - seen.turns.max(slot.turns_then.load(Relaxed)).min(turns);
        if turns != seen.turns {
            // The notes are about an earlier turn.
            seen.forget_callback(slot);
            (seen.cpu_time, seen.preempted) = (None, 0);
        }
        seen.turns = turns;
        if slot.is_asleep() {
            seen.forget_callback(slot);
            slot.mark.clear();
            *seen = Seen { turns, ..Seen::default() };
            continue;
        }
        watch_callback(shared, worker, seen, ended);
        // Relaxed here and below: hints; the woken worker checks under the locks.
        let waiting = slot.len.load(Relaxed) as u64;
        if !help {
            continue;
        }
        if ended > 0 {
            // It may be in a long callback since the last of these turns.
            soon |= !slot.came_round.load(Relaxed);
            seen.note_cpu_time(shared, worker);
            // More colors than it runs in time: the last one waits too long.
            let behind = waiting > ended;
            slot.behind.store(behind, Relaxed);
            if behind {
                shared.kick_any(worker);
            }
            continue;
        }
        match processor(shared, worker, seen) {
            Processor::Unknown => {
                soon = true;
                continue;
            }
            Processor::Had => {
                shared.be_wary();
                slot.mark.set_overdue(turns);
            }
            Processor::HadByOthers => slot.mark.set_preempted(turns),
        }
        shared.kick_any(worker);
    }
    soon
}

/// The use of the processor since a worker's turn was first seen not to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Processor {
    /// The worker's thread had it, or is blocked, or the driver does not know: the worker is as
    /// busy as it seems.
    Had,
    /// Other threads had it, and the worker's thread is ready to run.
    HadByOthers,
    /// Only a second look can tell.
    Unknown,
}

fn processor(shared: &Shared, worker: usize, seen: &mut Seen) -> Processor {
    let Some(now) = shared.driver.cpu_time(worker).map(|used| (used, Instant::now())) else { return Processor::Had };
    let Some((used_before, then)) = seen.cpu_time.filter(|(_, then)| now.1 - *then >= TELLING) else {
        seen.cpu_time = seen.cpu_time.or(Some(now));
        return Processor::Unknown;
    };
    let (used, passed) = (now.0.saturating_sub(used_before), now.1 - then);
    let waits_for_it = used < passed * 2 / 3 && shared.driver.is_runnable(worker) == Some(true);
    seen.preempted = if waits_for_it { seen.preempted + 1 } else { 0 };
    match seen.preempted {
        1..=PREEMPTED_LOOKS_MAX => Processor::HadByOthers,
        _ => Processor::Had,
    }
}

/// Reports, once, a callback that has run for too long.
fn watch_callback(shared: &Shared, worker: usize, seen: &mut Seen, ended: u64) {
    let slot = &shared.slots[worker];
    // Relaxed: for reports on callbacks that run for long.
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
        // Relaxed: for statistics. At least 1, because 0 means none.
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

/// The least time between two checks that can tell how the processor was used.
const TELLING: Duration = Duration::from_micros(100);

/// A worker that is preempted for longer (some 20 ms) gets help like a blocked one. The kernel lets
/// other threads run for three or four milliseconds at a time.
const PREEMPTED_LOOKS_MAX: u32 = 24;
