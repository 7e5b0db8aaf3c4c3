//! A full memory barrier in all threads of the process: the far side of the scheduler's handshake with thieves.

use std::sync::OnceLock;

use dapple_sched::Barrier;

/// Makes each running thread of the process pass a full memory barrier before it returns (`membarrier`, Linux 4.14). False
/// where the kernel, or a container's filter, refuses. Cost: some microseconds, and an interrupt of each core that runs a
/// thread of the process.
pub(super) struct Membarrier;

// SAFETY: the private expedited command returns 0 only once each thread of this process has been in a state in which all its
// accesses before and after are ordered by a full barrier: running ones by an interrupt, others by the switch to them.
unsafe impl Barrier for Membarrier {
    fn pass(&self) -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes three numbers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use dapple_sched::Barrier;

    #[test]
    fn this_kernel_has_it() {
        // Of the kernels that Dapple runs on all do; where a container refuses, tasks are polled one at a time.
        assert!(super::Membarrier.pass());
    }
}
