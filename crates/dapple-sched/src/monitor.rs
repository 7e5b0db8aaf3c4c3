//! Keeps C6: nobody waits beside an idle core.
//!
//! A worker in a long callback cannot look around, and those that sleep must not tick, so one thread watches, and only
//! while some workers run and some sleep: then it looks every half millisecond. A worker that has not ended a turn
//! since the last look, or whose queue will take longer than a millisecond, is marked overdue, and a sleeper is woken
//! to take over its colors, news, events and timers. With nothing to watch it sleeps without a time-out.

use std::sync::OnceLock;
use std::sync::Weak;
use std::thread::Thread;
use std::time::Duration;

use crate::shared::{MONITOR_ASLEEP, SLEEPERS, Shared};
use crate::sync::atomic::{AtomicU32, Ordering::*};

/// The way to the monitor's thread.
pub(crate) struct Monitor {
    thread: OnceLock<Thread>,
}

/// What the monitor remembers of a worker between two looks.
#[derive(Clone, Copy, Default)]
struct Seen {
    turns: u64,
    /// Looks in a row at which the worker had colors waiting.
    backlog: u32,
    /// Looks to let pass before a sleeper is woken for a mere backlog again.
    pause: u32,
    /// The last pause; doubles while waking does not help.
    pause_last: u32,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor { thread: OnceLock::new() }
    }

    /// Called once, by the monitor's thread.
    pub(crate) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    #[cold]
    pub(crate) fn wake_if_asleep(&self, pulse: &AtomicU32) {
        if pulse.fetch_and(!MONITOR_ASLEEP, AcqRel) & MONITOR_ASLEEP != 0 {
            self.wake();
        }
    }
}

/// The monitor's thread. It does not keep the runtime alive.
pub(crate) fn run(shared: Weak<Shared>) {
    let mut seen = Vec::new();
    let mut quiet_looks = 0;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_stopping() {
            return;
        }
        seen.resize(shared.slots.len(), Seen::default());
        // Relaxed: the exchange below decides.
        let pulse = shared.pulse.load(Relaxed);
        if needed(pulse, shared.slots.len()) {
            quiet_looks = 0;
            look(&shared, &mut seen);
        } else {
            quiet_looks += 1;
        }
        // A few looks more before it sleeps: a load of short bursts is not to wake it for each.
        let sleeps = quiet_looks > QUIET_LOOKS
            && shared.pulse.compare_exchange(pulse, pulse | MONITOR_ASLEEP, AcqRel, Relaxed).is_ok();
        drop(shared);
        if sleeps {
            std::thread::park();
        } else {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

/// Whether some workers sleep and some do not.
fn needed(pulse: u32, workers: usize) -> bool {
    let asleep = (pulse & SLEEPERS) as usize;
    asleep > 0 && asleep < workers
}

fn look(shared: &Shared, seen: &mut [Seen]) {
    for (worker, seen) in seen.iter_mut().enumerate() {
        let slot = &shared.slots[worker];
        let turns = slot.counters.turns();
        let ended = turns - seen.turns;
        seen.turns = turns;
        let waiting = slot.len.load(Relaxed) as u64;
        if slot.is_asleep() {
            *seen = Seen { turns, ..Seen::default() };
        } else if ended == 0 || waiting > ended {
            // A long callback, or more colors than it gets through in a look: someone waits too long there.
            slot.overdue.store(true, Relaxed);
            shared.kick_any(worker);
        } else if waiting > 0 {
            seen.backlog += 1;
            offer_help(shared, worker, seen);
        } else {
            seen.backlog = 0;
        }
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

/// Two looks make the millisecond of C6.
const LOOK_EVERY: Duration = Duration::from_micros(450);

/// Looks without need before the monitor sleeps.
const QUIET_LOOKS: u32 = 16;

/// At most this many looks (some 60 ms) between two offers of help.
const PAUSE_MAX: u32 = 128;
