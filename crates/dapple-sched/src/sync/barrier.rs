//! A barrier that costs nothing for one thread and microseconds for the other: `membarrier`.
//!
//! The only fence of the scheduler, and its only handshakes on two words. Before each poll of a
//! light task a worker writes its position, and afterwards checks for a thief (`light.rs`). A
//! worker also writes that it is in its own lock, and checks whether it may be (`lock/owned.rs`). A
//! read-modify-write there would cost as much as the poll, or as the post. Data is passed by
//! acquire and release as elsewhere, so that race detectors see it; the barrier decides only which
//! of two threads yields.

#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use crate::runtime::driver::Barrier;

/// Keeps the store before it in front of the load after it. The other thread makes this one pass a
/// real fence at that moment, so this is only for the compiler.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    std::sync::atomic::compiler_fence(SeqCst);
    // In a model both sides use the same fence.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    crate::sync::atomic::fence(SeqCst);
}

/// Makes each running thread of the process pass a full memory barrier before it returns
/// (`membarrier`, Linux 4.14). False if the kernel, or a container's filter, refuses. Cost: some
/// microseconds, and an interrupt of each core that runs a thread of the process.
#[derive(Debug)]
pub struct Membarrier;

// SAFETY: the private expedited command returns 0 only once each thread of this process has been in
// a state in which a full barrier orders all its accesses before and after: running threads by an
// interrupt, others by the switch to them.
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
    // SAFETY: takes three numbers, and touches none of our memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

// SAFETY: it never claims that threads have passed a barrier.
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
        // Every kernel that Dapple supports has it. In a container that refuses it, tasks are
        // polled one at a time, and a worker takes its own lock as any thread does.
        assert!(Membarrier.pass());
    }
}
