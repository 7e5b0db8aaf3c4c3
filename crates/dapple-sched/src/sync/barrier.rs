//! A barrier with a near side that costs nothing and a far side that costs microseconds: `membarrier`.
//!
//! The only fence of the scheduler, and its only handshakes on two words. A worker writes where it is before each poll of a
//! light task, and looks for a thief afterwards (`light.rs`); and it writes that it is in its own lock, and looks whether it may
//! be (`lock/owned.rs`). A read-modify-write there would cost as much as the poll, or as the post. What is handed over goes
//! through acquire and release like everything else, so that race detectors see it; the barrier decides only which of two
//! threads gives way.

#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use crate::runtime::driver::Barrier;

/// Keeps a store before it in front of a load after it. The far side makes this thread pass a real fence at that moment, so
/// here it is the compiler that is told.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    std::sync::atomic::compiler_fence(SeqCst);
    // A model has both sides alike.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    crate::sync::atomic::fence(SeqCst);
}

/// Makes each running thread of the process pass a full memory barrier before it returns (`membarrier`, Linux 4.14). False
/// where the kernel, or a container's filter, refuses. Cost: some microseconds, and an interrupt of each core that runs a
/// thread of the process.
#[derive(Debug)]
pub struct Membarrier;

// SAFETY: the private expedited command returns 0 only once each thread of this process has been in a state in which all its
// accesses before and after are ordered by a full barrier: running ones by an interrupt, others by the switch to them.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe impl Barrier for Membarrier {
    fn pass(&self) -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes three numbers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

// SAFETY: it never says that threads have passed one.
#[cfg(not(all(target_os = "linux", not(miri))))]
unsafe impl Barrier for Membarrier {
    fn pass(&self) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux", not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::{Barrier, Membarrier};

    #[test]
    fn this_kernel_has_it() {
        // Of the kernels that Dapple runs on all do. Where a container refuses, tasks are polled one at a time, and a worker
        // takes its own lock like any other.
        assert!(Membarrier.pass());
    }
}
