//! The one place that knows whether atomics and locks come from `std`, from loom or from shuttle.
//!
//! Everything shared in this crate takes them from here, so that the models in `tests/loom/` and `tests/shuttle/` run
//! the shipped code and not a copy of it. The constants are those that a model must reach in a few steps.

#[cfg(dapple_loom)]
mod imp {
    use std::task::{Context, Poll};

    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use loom::{lazy_static, thread_local};

    /// loom takes `SeqCst` accesses for acquire and release, and knows their total order only from fences.
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

    /// Nothing: what the models need it for, `SeqCst` accesses do.
    #[inline(always)]
    pub(crate) fn sc_fence() {}

    /// Spins so many rounds.
    #[inline]
    pub(crate) fn pause(rounds: u32) {
        (0..rounds).for_each(|_| std::hint::spin_loop());
    }

    /// Gives the core to a thread that is ready, such as a preempted one.
    pub(crate) fn give_way() {
        std::thread::yield_now();
    }

    /// Gives the core away: to any thread that is ready at first, and from then on for up to a millisecond. A worker never sleeps.
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

/// Looks at a locked word so often before its transaction starts over.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const LOOKS: u32 = 24;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const LOOKS: u32 = 1;

/// Attempts that fail before a transaction takes the serial path.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const ATTEMPTS: u32 = 64;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const ATTEMPTS: u32 = 2;

/// Reads up to which each is checked against all before it; beyond, the clock is asked.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const FEW_READS: usize = 16;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const FEW_READS: usize = 2;

/// Variables that are allocated together.
///
/// In the models, all that one of them uses: commits lock in the order of addresses, and a model has to find the same
/// order in every execution. Variables with allocations of their own lie as the allocator likes.
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub(crate) const CHUNK: usize = 64;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) const CHUNK: usize = 4;

/// Locks; what a panic has left behind is as good as ever, since no user code runs under any lock of this crate.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
