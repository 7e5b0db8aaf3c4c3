//! Which of the workers that share a reactor waits for the kernel.
//!
//! One worker at a time, the *holder* of the duty, waits in the kernel; the others sleep aside, each until it is woken. So an
//! event wakes the worker that also takes the next one, and two tasks that talk through a socket run on one core, unless
//! there is work for two.
//!
//! | duty | meaning | next |
//! |---|---|---|
//! | `holder` | the holder is awake: it looks at the kernel every now and then, and waits there when it has nothing to do | `holder + WAITS`: the holder begins to wait; `other`: another worker takes over from a holder that does not come back soon |
//! | `holder + WAITS` | the holder waits in the kernel | `holder`: the holder is back |
//!
//! Only the holder sets and clears `WAITS`. A worker takes the duty over for itself, while it is awake; or it is given the
//! duty by a helper that has another reactor, or by a holder that goes to rest, which then wakes it. So the holder is awake or in the kernel at any time, but for
//! a millisecond where another worker takes in events: there is always a worker that looks at the kernel next.
//!
//! A holder that is stuck in a long callback loses the duty (C6): to the worker that the scheduler's monitor sends to help, or,
//! where none sleeps, to one that has come by for about a millisecond and has seen no look at the kernel.
//!
//! Orderings: a worker that takes the duty over acquires what the holder did before (`AcqRel` exchanges, a release store),
//! though nothing but the duty itself rests on it. The reactor's lock guards what is collected from the kernel.

use crate::sync::atomic::{AtomicU32, Ordering};

/// See the module's text. Workers are known by their number among those that share the reactor.
pub(super) struct Duty(AtomicU32);

impl Duty {
    /// Held by the first of them.
    pub(super) fn new() -> Duty {
        Duty(AtomicU32::new(0))
    }

    /// Whether `worker` is the holder, and awake.
    pub(super) fn is_held_by(&self, worker: u32) -> bool {
        // Relaxed: a hint. The events themselves are under the reactor's lock.
        self.0.load(Ordering::Relaxed) == worker
    }

    /// The holder begins to wait; `None` where `worker` is not the holder, and is to sleep aside.
    pub(super) fn begin_wait(&self, worker: u32) -> Option<Waits<'_>> {
        let began = self.0.compare_exchange(worker, worker | WAITS, Ordering::AcqRel, Ordering::Acquire);
        began.ok().map(|holder| Waits { duty: self, holder })
    }

    /// As `take_over`, from any holder.
    pub(super) fn take_over_from_any(&self, worker: u32) {
        // Relaxed: the exchange decides.
        let holder = self.0.load(Ordering::Relaxed);
        if holder & WAITS == 0 {
            self.take_over(holder, worker);
        }
    }

    /// `worker`, which is awake and the caller, takes over from a holder that does not come back soon. Nothing happens where
    /// that is not the holder, or waits.
    pub(super) fn take_over(&self, holder: u32, worker: u32) {
        let _ = self.0.compare_exchange(holder, worker, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The holder waits; it is back when this is dropped, also by a panic.
pub(super) struct Waits<'a> {
    duty: &'a Duty,
    holder: u32,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.duty.0.store(self.holder, Ordering::Release);
    }
}

const WAITS: u32 = 1 << 31;
