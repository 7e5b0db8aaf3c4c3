//! The duty of waiting for the kernel, which one of the workers that share a reactor has.
//!
//! One worker at a time, the *holder* of the duty, waits in the kernel; the others sleep aside,
//! each until it is woken. So an event wakes the worker that also takes the next one, and two tasks
//! that talk through a socket run on one core, unless there is work for two.
//!
//! | duty | meaning | next |
//! |---|---|---|
//! | `holder` | the holder is awake: it polls the kernel regularly, and waits there when it has no work | `holder + WAITS`: the holder begins to wait; `other`: another worker takes over from a holder in a long callback |
//! | `holder + WAITS` | the holder waits in the kernel | `holder`: the holder is back |
//!
//! Only the holder sets and clears `WAITS`. A worker that is awake takes the duty over for itself;
//! or it gets the duty from a helper with another reactor, or from a holder that is about to rest,
//! which then wakes it. So the holder is always awake or in the kernel, except for a millisecond
//! while another worker takes in events: some worker always polls the kernel next.
//!
//! Where cores are free, a worker without work takes ready events without the duty
//! ([`dapple_sched::Driver::poll_shared`]), unless the holder waits in the kernel and so gets them itself.
//!
//! A holder in a long callback loses the duty (C6): to the worker that the scheduler's monitor
//! sends to help, or, if none sleeps, to a worker that has seen no poll of the kernel for about a
//! millisecond.
//!
//! Orderings: a worker that takes the duty over acquires what the holder did before (`AcqRel`
//! exchanges, a release store). Only the duty itself needs that: the reactor's lock guards the
//! events collected from the kernel.

use crate::sync::atomic::{AtomicU32, Ordering};

/// See the module's text. A worker's number is its index among those that share the reactor.
pub(super) struct Duty(AtomicU32);

impl Duty {
    /// The first worker holds it.
    pub(super) fn new() -> Duty {
        Duty(AtomicU32::new(0))
    }

    /// Whether `worker` is the holder, and awake.
    pub(super) fn is_held_by(&self, worker: u32) -> bool {
        // Relaxed: a hint. The events themselves are under the reactor's lock.
        self.0.load(Ordering::Relaxed) == worker
    }

    /// The holder begins to wait; `None` if `worker` is not the holder, and must sleep aside.
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

    /// `worker`, the caller, is awake and takes over from a holder in a long callback. Does nothing
    /// if `holder` is no longer the holder, or waits.
    pub(super) fn take_over(&self, holder: u32, worker: u32) {
        let _ = self.0.compare_exchange(holder, worker, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The holder waits; dropping this, even by a panic, ends the wait.
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
