//! A standing clock: it jumps to the next deadline when everything waits. For tests.
//!
//! # The count
//!
//! One number, `busy`, counts the *participants* that can still act at the present time. Everything
//! else follows from one rule: **a participant that makes another one busy does so before it stops
//! being busy itself.** So the number is zero only when no participant has anything left to do;
//! everything that can happen then comes from the kernel or from threads that are not counted.
//!
//! | participant | is busy | one more | one less |
//! |---|---|---|---|
//! | a worker | while its slot's `parking` is not `PARKED` | the thread that takes it away from `PARKED`: `unpark`, or the worker that woke for an event | the worker, after it has set `PARKED` |
//! | a thread in `block_on` | from its begin or a wake to the next pending poll | itself, or the waker | itself |
//! | the decision | while a worker decides, see below | that worker | that worker |
//!
//! *Calls* are counted separately: functions on the blocking pool (from the moment they are handed
//! in), questions to event loops of the program's own, calls on files that a ring has, and waits
//! for a child process or its output. They end by themselves, in real time, and then make a
//! participant busy. While there are any the clock stands, for at most [`PATIENCE`]; after that it
//! runs at the pace of the real clock, so that a limit on an endless call is reached. A function on
//! the pool that waits in `block_on` counts as a waiting thread meanwhile, and not as a call.
//!
//! # The decision
//!
//! | step | by | if not |
//! |---|---|---|
//! | 1. `busy` has become 0 | the worker that has just parked; another thread wakes worker 0, which parks again | another participant will come here |
//! | 2. claim: `busy` 0 → 1 | that worker, under the lock: one worker decides at a time | as above |
//! | 3. check that no slot's epoll has any event, for as long as the sockets get to settle | that worker | give the claim back; the owner of that slot takes the event. Again, if `busy` is 0 again |
//! | 4. `busy` is still 1, and was all the time | that worker, under the lock | give the claim back: the participant that came decides later |
//! | 5. all workers are asleep to the scheduler | that worker, under the same lock | give the claim back, and again |
//! | 6. no calls | that worker, under the same lock | wait for them in real time |
//! | 7. the clock is set, due timers are taken out | that worker, under the same lock | |
//! | 8. it wakes them, being busy by its claim | that worker | |
//!
//! Step 3 sees every event that the kernel has reported and no worker has taken in. A parked worker
//! waits with `poll` *on* its epoll descriptor, which takes nothing out; it collects events only
//! after it counts as busy again. Data from one socket to another in this process has arrived by
//! then (loopback delivers within the call, with rare exceptions; see [`SETTLE_MAX`]).
//!
//! Step 5 is for threads that are not counted, the scheduler's monitor among them. A thread that
//! finds a worker asleep undertakes to wake it, and later posters rely on that thread. Until it
//! does so nothing counts as busy, although an event waits.
//!
//! Step 5 does not see a color if such a thread has marked its inbox and not linked yet: a post to
//! that very color in these few instructions relies on the link. Seeing it would cost each post
//! from outside one more locked instruction.
//!
//! Threads that are not counted (started by the program, outside of `block_on`) may act before a
//! jump or after it, as with any clock. A program that needs more takes a [pause](Standing::pause).
//!
//! Everything is under one mutex, which is fast enough for a test and easy to check. It is never
//! held during a call of a waker, a slot or the scheduler.

mod decide;
mod outside;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use dapple_sched::environment;
use dapple_sched::environment::HashMap;
use dapple_sched::foreign::KeptWaker;

use super::entry::Entry;
use super::slot::Slot;
use crate::lock::Mutex;
pub(crate) use outside::Call;

/// See the module's text.
pub(crate) struct Standing {
    start: Instant,
    /// Nanoseconds since `start`; written under the lock.
    now_ns: AtomicU64,
    /// Counts operations on descriptors, and events, to tell whether there were any since the last
    /// jump.
    io_count: AtomicU64,
    state: Mutex<State>,
    /// An environment moves it, and no worker decides.
    is_moved: bool,
    /// Set once, before the workers start.
    slots: OnceLock<Box<[Weak<Slot>]>>,
}

#[derive(Default)]
struct State {
    busy: usize,
    /// Counts how often a participant has turned busy.
    arrivals: u64,
    calls: usize,
    /// Counts calls that have begun or ended.
    call_changes: u64,
    /// While it is not zero, only calls of `advance` move the clock.
    pauses: usize,
    timers: BTreeMap<Due, KeptWaker>,
    /// The place of each timer in `timers`.
    dues: HashMap<u64, Due>,
    /// Those timers that belong to calls of `advance`.
    advances: BTreeSet<Due>,
    next_number: u64,
    /// Descriptors with a child process at the other end.
    outside: Vec<Weak<Entry>>,
    /// The time since which only calls keep the clock from jumping.
    stalled: Option<Stalled>,
    /// `io_count` at the last jump.
    io_seen: u64,
    is_shut_down: bool,
}

/// The due time of a timer. At any time, calls of `advance` come last: everything that was due has
/// run before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    at: Instant,
    rank: Rank,
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rank {
    Timer,
    Advance,
}

struct Stalled {
    since: Instant,
    /// This stall lasts until this time of the real clock.
    made_up: Instant,
    /// A fingerprint of the calls; a change means progress.
    fingerprint: u64,
}

impl Standing {
    /// All workers count as busy until each has parked for the first time.
    /// `is_moved`: the thread's environment tells the time.
    pub(crate) fn new(workers: usize, is_moved: bool) -> Self {
        // Relaxed, here and in `drop`: a thread with a runtime that has such a clock has seen it
        // made.
        CLOCKS.fetch_add(1, Ordering::Relaxed);
        Standing {
            start: environment::now(),
            is_moved,
            now_ns: AtomicU64::new(0),
            io_count: AtomicU64::new(0),
            state: Mutex::new(State { busy: workers, ..State::default() }),
            slots: OnceLock::new(),
        }
    }

    pub(crate) fn set_slots(&self, slots: &[Arc<Slot>]) {
        let _ = self.slots.set(slots.iter().map(Arc::downgrade).collect());
    }

    pub(crate) fn now(&self) -> Instant {
        if self.is_moved {
            return environment::now();
        }
        // Acquire pairs with the store of a jump. (A participant woken by it is ordered anyway.)
        self.start + Duration::from_nanos(self.now_ns.load(Ordering::Acquire))
    }

    /// Notes a read, write, accept or event: an answer may be in transit.
    pub(crate) fn note_io(&self) {
        // Relaxed: only a change matters, and the lock orders the reads.
        self.io_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call on a file begins, which the rings count.
    pub(crate) fn note_call(&self) {
        self.state.lock().call_changes += 1;
    }

    /// Arms a timer; `None` after the shutdown.
    pub(crate) fn arm(&self, at: Instant, rank: Rank, waker: KeptWaker) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_shut_down {
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        let due = Due { at, rank, number };
        state.timers.insert(due, waker);
        state.dues.insert(number, due);
        if rank == Rank::Advance {
            state.advances.insert(due);
        }
        self.unlock_and_nudge(state);
        Some(number)
    }

    /// Makes an armed timer wake `waker`; `false` if it has fired.
    pub(crate) fn rewire(&self, number: u64, waker: KeptWaker) -> bool {
        let mut state = self.state.lock();
        let Some(due) = state.dues.get(&number).copied() else {
            drop(state);
            return false;
        };
        let kept = state.timers.get_mut(&due).expect("each number names a timer");
        let replaced = std::mem::replace(kept, waker);
        drop(state);
        drop(replaced);
        true
    }

    /// Moves an armed timer; `false` if it has fired.
    pub(crate) fn reset(&self, number: u64, at: Instant) -> bool {
        let mut state = self.state.lock();
        let Some(old) = state.dues.get(&number).copied() else {
            return false;
        };
        let waker = state.timers.remove(&old).expect("each number names a timer");
        state.forget(old);
        let due = Due { at, ..old };
        state.timers.insert(due, waker);
        state.dues.insert(number, due);
        if due.rank == Rank::Advance {
            state.advances.insert(due);
        }
        self.unlock_and_nudge(state);
        true
    }

    pub(crate) fn disarm(&self, number: u64) {
        let mut state = self.state.lock();
        let due = state.dues.get(&number).copied();
        let waker = due.and_then(|due| {
            state.forget(due);
            state.timers.remove(&due)
        });
        drop(state);
        drop(waker);
    }

    /// From now on only calls of `advance` move the clock.
    pub(crate) fn pause(&self) {
        // Under the lock: a decision is over, or will see it.
        self.state.lock().pauses += 1;
    }

    pub(crate) fn resume(&self) {
        let mut state = self.state.lock();
        state.pauses -= 1;
        self.unlock_and_nudge(state);
    }

    /// Remembers a descriptor with its other end in another process.
    pub(crate) fn note_outside(&self, entry: &Arc<Entry>) {
        let mut state = self.state.lock();
        state.outside.retain(|entry| entry.strong_count() > 0);
        state.outside.push(Arc::downgrade(entry));
    }

    pub(crate) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.is_shut_down = true;
        state.dues.clear();
        state.advances.clear();
        let timers = std::mem::take(&mut state.timers);
        drop(state);
        drop(timers);
    }

    /// Makes a worker decide after a change that may let the clock jump: if none is busy, no worker
    /// would notice.
    fn unlock_and_nudge(&self, state: std::sync::MutexGuard<'_, State>) {
        let is_idle = state.busy == 0 && !self.is_moved;
        drop(state);
        if is_idle && let Some(slot) = self.slots().next() {
            slot.unpark();
        }
    }

    /// When the first timer is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.state.lock().timers.first_key_value().map(|(due, _)| due.at)
    }

    /// Fires due timers, if an environment moves the clock; returns whether there were any.
    pub(crate) fn fire(&self) -> bool {
        let now = self.now();
        let mut fired = false;
        loop {
            let mut state = self.state.lock();
            let Some(entry) = state.timers.first_entry().filter(|entry| entry.key().at <= now) else { return fired };
            let (due, waker) = entry.remove_entry();
            state.forget(due);
            drop(state);
            waker.wake();
            fired = true;
        }
    }

    fn slots(&self) -> impl Iterator<Item = Arc<Slot>> {
        self.slots.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// The state of the clock, for display.
    pub(crate) fn dump(&self) -> ClockDump {
        let ring_calls = self.ring_calls();
        let state = self.state.lock();
        let now = self.now();
        ClockDump {
            passed: now - self.start,
            timers: state.timers.len(),
            next_in: state.timers.first_key_value().map(|(due, _)| due.at.saturating_duration_since(now)),
            busy: state.busy,
            blocking_calls: state.calls,
            file_calls: ring_calls,
            child_waits: state.awaited_outside().count(),
            pauses: state.pauses,
        }
    }

    /// Calls that rings have, and calls that wait for their turn there.
    fn ring_calls(&self) -> usize {
        let load = |slot: Arc<Slot>| slot.ring().map_or(0, |ring| ring.load().0 + ring.load().1);
        self.slots().map(load).sum()
    }
}

impl State {
    /// Counts a participant that turns busy.
    fn add_busy(&mut self) {
        self.busy += 1;
        self.arrivals += 1;
    }

    /// Removes a timer and its number.
    fn forget(&mut self, due: Due) {
        self.dues.remove(&due.number);
        self.advances.remove(&due);
    }

    /// Descriptors with an outside end that a task waits for.
    fn awaited_outside(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.outside.iter().filter_map(Weak::upgrade).filter(|entry| entry.is_awaited())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        CLOCKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether some runtime of this process has such a clock; if not, no thread needs to search for its
/// own.
pub(crate) fn exist() -> bool {
    // Relaxed: see `Standing::new`.
    CLOCKS.load(Ordering::Relaxed) > 0
}

/// The state of a standing clock; see [`EpollDriver::clock_dump`](crate::EpollDriver::clock_dump).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClockDump {
    /// The time that has passed by this clock since the runtime was made.
    pub passed: Duration,
    /// Armed timers, and waiting calls of `advance`.
    pub timers: usize,
    /// The time until the first of them.
    pub next_in: Option<Duration>,
    /// Workers, and threads in `block_on`, with work.
    pub busy: usize,
    /// Functions on the blocking pool, and questions to event loops of the program's own.
    pub blocking_calls: usize,
    /// Calls on files that the kernel has.
    pub file_calls: usize,
    /// Child processes, and pipes from them, that a task waits for.
    pub child_waits: usize,
    /// Pauses in force.
    pub pauses: usize,
}

impl std::fmt::Display for ClockDump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the clock stands at {:?} after the start; ", self.passed)?;
        match self.next_in {
            Some(next_in) => write!(f, "{} timers are armed, the next one in {next_in:?}", self.timers)?,
            None => f.write_str("no timer is armed, so it cannot jump")?,
        }
        let reasons = [
            (self.busy, "workers or threads in `block_on` are busy, or block"),
            (self.blocking_calls, "functions on the blocking pool, or questions to event loops, are under way"),
            (self.file_calls, "calls on files are under way"),
            (self.child_waits, "waits for a child process or its output"),
            (self.pauses, "pauses are in force"),
        ];
        let mut before = if self.next_in.is_some() { "; it does not jump because of: " } else { "; there are: " };
        for (count, what) in reasons.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{before}{count} {what}")?;
            before = ", ";
        }
        Ok(())
    }
}

/// The number of clocks of this kind in the process.
static CLOCKS: AtomicUsize = AtomicUsize::new(0);

/// How long the clock stands for calls that do not end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long, in real time, the kernel gets before a jump if descriptors were used since the last
/// one: as long as the jump, within these limits. Data within this process arrives at once, except
/// when the kernel leaves it to a thread of its own; an answer of another thread or process takes
/// until that is scheduled.
const SETTLE_MIN: Duration = Duration::from_millis(1);
const SETTLE_MAX: Duration = Duration::from_millis(5);
