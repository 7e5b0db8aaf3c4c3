//! The switch of atomics and locks between `std`, loom and shuttle.
//!
//! All shared state in this crate uses it, so the models in `tests/loom/` and `tests/shuttle/` run
//! the shipped code and not a copy. The constants are those that a model must reach in a few steps.

#[cfg(dapple_loom)]
mod imp {
    use std::task::{Context, Poll};

    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use loom::{lazy_static, thread_local};

    /// loom treats `SeqCst` accesses as acquire and release, and knows their total order only from
    /// fences.
    pub(crate) fn sc_fence() {
        atomic::fence(atomic::Ordering::SeqCst);
    }

    pub(crate) fn pause(_rounds: u32) {
        loom::thread::yield_now();
    }

    pub(crate) fn give_way() {
        loom::thread::yield_now();
    }

    pub(crate) fn rest(_turn: u32) {
        loom::thread::yield_now();
    }

    pub(crate) fn on_worker() -> bool {
        false
    }

    pub(crate) fn poll_budget(_: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[cfg(dapple_shuttle)]
mod imp {
    use std::task::{Context, Poll};

    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::{lazy_static, thread_local};

    pub(crate) fn sc_fence() {}

    pub(crate) fn pause(_rounds: u32) {
        shuttle::thread::yield_now();
    }

    pub(crate) fn give_way() {
        shuttle::thread::yield_now();
    }

    pub(crate) fn rest(_turn: u32) {
        shuttle::thread::yield_now();
    }

    pub(crate) fn on_worker() -> bool {
        false
    }

    pub(crate) fn poll_budget(_: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod imp {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::thread_local;

    /// Nothing: `SeqCst` accesses already do what the models need the fence for.
    #[inline(always)]
    pub(crate) fn sc_fence() {}

    /// Spins for this many rounds.
    #[inline]
    pub(crate) fn pause(rounds: u32) {
        (0..rounds).for_each(|_| std::hint::spin_loop());
    }

    /// Yields the core to a ready thread, such as a preempted one.
    pub(crate) fn give_way() {
        std::thread::yield_now();
    }

    /// Yields the core: at first to any ready thread, later for up to a millisecond. A worker never
    /// sleeps.
    pub(crate) fn rest(turn: u32) {
        match turn.checked_sub(YIELDS).filter(|_| !on_worker()) {
            None => give_way(),
            Some(turn) => std::thread::sleep(std::time::Duration::from_micros(50 << turn.min(4))),
        }
    }

    const YIELDS: u32 = 16;

    pub(crate) use dapple_sched::{on_worker, poll_budget};
}

pub(crate) use imp::*;

/// The number of reads of a locked word before the transaction starts over.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const LOOKS: u32 = 24;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const LOOKS: u32 = 1;

/// Failed attempts before a transaction takes the serial path.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const ATTEMPTS: u32 = 64;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const ATTEMPTS: u32 = 2;

/// Up to this many reads, each is checked against all before it; beyond, the clock decides.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const FEW_READS: usize = 16;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const FEW_READS: usize = 2;

/// The number of variables allocated together.
///
/// In the models, it covers all variables of one model: commits lock in the order of addresses, and
/// a model must find the same order in every execution. The allocator may place separate
/// allocations in any order.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const CHUNK: usize = 64;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const CHUNK: usize = 4;

/// Locks; poison is ignored, because no user code runs under any lock of this crate.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
