//! Whether the machine has a core for one more worker.
//!
//! Waiting work alone does not tell. Where other threads use the cores as well, the clients of a server for instance,
//! a second worker takes its core from them and from the first one, and short turns lose their cached data for nothing.
//! Where cores are idle the same work should spread at once. The processor time of a worker that is always busy tells
//! the two apart:
//!
//! | of the time that has passed without a sleep, 4 ms or more | so |
//! |---|---|
//! | it had its processor for 15/16 or more | cores are *free* for the next 100 ms |
//! | it had it for 3/4 or less | other threads want the cores: they are not free |
//! | something in between, or no worker is always busy | as before |
//!
//! While cores are free, a worker calls for help for 40 us of waiting work even if its turns are short
//! ([`Worker::call_for_help`]), and a worker without work takes events from the kernel for which another worker would
//! come later ([`crate::Driver::poll_shared`]).
//!
//! Everything here is a hint, so all accesses are relaxed. It is never free under a model, and where the driver does
//! not know the processor time, as in a simulation.

use std::time::Duration;

use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::worker::Worker;

/// The findings of one runtime's workers; see the module's text.
#[derive(Default)]
pub(crate) struct Cores {
    free: AtomicBool,
    /// When a worker last found them free, in nanoseconds since the runtime started.
    free_at_ns: AtomicU64,
}

impl Cores {
    /// Whether a core is likely to be idle.
    #[inline]
    pub(crate) fn are_free(&self) -> bool {
        self.free.load(Relaxed)
    }

    fn set(&self, free: bool) {
        if self.are_free() != free {
            self.free.store(free, Relaxed);
        }
    }

    /// A worker had its processor for `used` of the time `passed`, all of which it was busy.
    fn judge(&self, used: Duration, passed: Duration, now_ns: u64) {
        if used * 16 >= passed * 15 {
            self.free_at_ns.store(now_ns, Relaxed);
            self.set(true);
        } else if used * 4 <= passed * 3 || now_ns.saturating_sub(self.free_at_ns.load(Relaxed)) > FREE_FOR_NS {
            self.set(false);
        }
    }
}

/// The begin of a worker's busy time.
#[derive(Clone, Copy)]
pub(crate) struct Busy {
    since_ns: u64,
    /// The processor time that the worker had used by then; `None` while it has been awake for too short a time to ask.
    used: Option<Duration>,
}

impl Busy {
    pub(crate) fn since(now_ns: u64) -> Busy {
        Busy { since_ns: now_ns, used: None }
    }
}

impl Worker {
    /// Called at each poll of the kernel between two turns: compares the processor time with the time that has passed.
    pub(super) fn judge_cores(&self, now_ns: u64) {
        if self.shared.slots.len() == 1 || cfg!(any(dapple_loom, dapple_shuttle)) {
            return;
        }
        let Busy { since_ns, used } = self.busy.get();
        let passed_ns = now_ns.saturating_sub(since_ns);
        let least_ns = if used.is_none() { ASK_AFTER_NS } else { JUDGE_EVERY_NS };
        if passed_ns < least_ns || self.shared.driver.is_stepped() {
            return;
        }
        let Some(now_used) = self.shared.driver.cpu_time(self.index) else { return };
        if let Some(used) = used {
            let used = now_used.saturating_sub(used);
            self.shared.cores.judge(used, Duration::from_nanos(passed_ns), now_ns);
        }
        self.busy.set(Busy { since_ns: now_ns, used: Some(now_used) });
    }
}

/// A worker that sleeps more often than this is not asked, as the question costs a system call.
const ASK_AFTER_NS: u64 = 1_000_000;

const JUDGE_EVERY_NS: u64 = 4_000_000;

/// An observation is worth this long.
const FREE_FOR_NS: u64 = 100_000_000;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn cores_are_free_while_a_busy_worker_keeps_its_processor() {
        let cores = Cores::default();
        let ms = Duration::from_millis;
        let mut found = Vec::new();
        for (used, now_ms) in [(14, 0), (15, 16), (14, 32), (12, 48), (16, 64), (14, 160), (14, 180)] {
            cores.judge(ms(used), ms(16), now_ms * 1_000_000);
            found.push(cores.are_free());
        }
        assert_eq!(found, [false, true, true, false, true, true, false]);
    }
}
