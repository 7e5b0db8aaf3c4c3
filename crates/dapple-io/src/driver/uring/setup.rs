//! Making a ring, and finding out whether this kernel and this container allow it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, Probe, opcode};

use crate::descriptors::is_shortage;

/// Bounds of one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most calls that the kernel has at the same time.
    pub(crate) in_flight_max: usize,
    /// The most kernel threads for calls that need one.
    pub(crate) threads_max: u32,
}

/// The reason why there is no ring.
pub(crate) enum Refused {
    /// Descriptors or memory are short at the moment.
    ForNow,
    /// The kernel or the container does not allow it, or the kernel is too old. Logged once in a
    /// process.
    ForGood,
}

/// Whether `DAPPLE_IO_URING` sends files to the pool.
pub(crate) fn is_switched_off() -> bool {
    std::env::var_os("DAPPLE_IO_URING").is_some_and(|value| value == "off" || value == "0")
}

/// A ring with everything that [`Request`](super::Request) needs.
///
/// Neither `COOP_TASKRUN` nor `DEFER_TASKRUN`: with them the kernel posts completions only when the
/// submitting thread enters it by itself, so those of a worker in a long callback would wait for it
/// (C6). Nor `SINGLE_ISSUER`, because a thief submits for such a worker.
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
    // Room for everything in flight, for as many cancellations, and for completions that were not
    // reaped.
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
    // Since Linux 5.15; without it the kernel's own limit holds, four for each core.
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
