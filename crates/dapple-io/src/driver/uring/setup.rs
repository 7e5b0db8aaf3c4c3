//! Making a ring, and finding out whether this kernel and this container allow it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, Probe, opcode};

use crate::descriptors::is_shortage;

/// Bounds of one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Calls that the kernel has at the same time.
    pub(crate) in_flight_max: usize,
    /// Threads of the kernel for calls that cannot be done otherwise.
    pub(crate) threads_max: u32,
}

/// Why there is no ring.
pub(crate) enum Refused {
    /// Descriptors or memory are short just now.
    ForNow,
    /// The kernel or the container does not allow it, or the kernel is too old. Said in the log, once a process.
    ForGood,
}

/// Whether `DAPPLE_IO_URING` says that files go to the pool.
pub(crate) fn is_switched_off() -> bool {
    std::env::var_os("DAPPLE_IO_URING").is_some_and(|value| value == "off" || value == "0")
}

/// A ring with all that [`Request`](super::Request) needs.
///
/// Neither `COOP_TASKRUN` nor `DEFER_TASKRUN`: they post completions only when the thread that submitted enters the kernel
/// of its own accord, so what belongs to a worker in a long callback would wait for it (C6). Nor `SINGLE_ISSUER`, as a thief
/// submits for such a worker.
pub(super) fn make(limits: Limits) -> Result<IoUring, Refused> {
    build(limits).map_err(|error| {
        if is_shortage(&error) {
            return Refused::ForNow;
        }
        // Relaxed: it guards nothing.
        if !LOGGED.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "io_uring is not available: files go through the blocking pool");
        }
        Refused::ForGood
    })
}

fn build(limits: Limits) -> io::Result<IoUring> {
    let entries = limits.in_flight_max as u32;
    // Room for what is in flight, as much again for cancellations, and for what was completed and not reaped.
    let uring = IoUring::builder().setup_clamp().setup_cqsize(entries.next_power_of_two() * 4).build(entries)?;
    let params = uring.params();
    if !params.is_feature_nodrop() || !params.is_feature_ext_arg() || !params.is_feature_submit_stable() {
        return Err(io::Error::other("this kernel's io_uring is too old (Linux 5.11 is needed)"));
    }
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe)?;
    if let Some((name, _)) = NEEDED.iter().find(|(_, code)| !probe.is_supported(*code)) {
        return Err(io::Error::other(format!("this kernel's io_uring has no {name}")));
    }
    // Since Linux 5.15; without it the kernel's own bound holds, four a core.
    let _ = uring.submitter().register_iowq_max_workers(&mut [limits.threads_max, limits.threads_max]);
    Ok(uring)
}

static LOGGED: AtomicBool = AtomicBool::new(false);

const NEEDED: [(&str, u8); 9] = [
    ("OPENAT", opcode::OpenAt::CODE),
    ("OPENAT2", opcode::OpenAt2::CODE),
    ("STATX", opcode::Statx::CODE),
    ("READ", opcode::Read::CODE),
    ("WRITE", opcode::Write::CODE),
    ("READ_FIXED", opcode::ReadFixed::CODE),
    ("WRITE_FIXED", opcode::WriteFixed::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
];
