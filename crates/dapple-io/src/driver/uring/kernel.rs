//! The system calls of a ring.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use super::setup::{self, Limits, Refused};

/// Both queues of a ring, and the table of its buffers.
pub(super) struct Kernel(IoUring);

impl Kernel {
    pub(super) fn new(limits: Limits) -> Result<Kernel, Refused> {
        setup::make(limits).map(Kernel)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds an entry to the submission queue; false if the queue is full.
    ///
    /// # Safety
    /// The memory that the entry points to stays unchanged until the completion.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.0.submission().push(entry) }.is_ok()
    }

    /// Adds the cancellation of the entry with `target` as its data; `data` is its own. False as in
    /// `push`.
    pub(super) fn push_cancel(&mut self, target: u64, data: u64) -> bool {
        let entry = opcode::AsyncCancel::new(target).build().user_data(data);
        // SAFETY: a cancellation points to nothing.
        unsafe { self.push(&entry) }
    }

    /// Passes the submission queue to the kernel; false if entries are left in it.
    pub(super) fn submit(&mut self) -> bool {
        let queue = self.0.submission();
        if queue.is_empty() && !queue.cq_overflow() {
            return true;
        }
        drop(queue);
        // Interrupted, short of memory, or too many completions were not reaped: the rest stays in
        // the queue until the next turn.
        let _ = self.0.submit();
        self.0.submission().is_empty()
    }

    /// The data and the result of the next completion.
    pub(super) fn completion(&mut self) -> Option<(u64, i32)> {
        self.0.completion().next().map(|completion| (completion.user_data(), completion.result()))
    }

    /// Submits, and waits for a completion, for some milliseconds at most.
    pub(super) fn wait_briefly(&mut self) {
        let limit = types::Timespec::from(Duration::from_millis(20));
        let args = types::SubmitArgs::new().timespec(&limit);
        // Whatever the result, the caller polls again, until its limit.
        let _ = self.0.submitter().submit_with_args(1, &args);
    }

    /// Makes an empty table of buffers; false if the kernel has none.
    pub(super) fn make_table(&self, places: u16) -> bool {
        self.0.submitter().register_buffers_sparse(u32::from(places)).is_ok()
    }

    /// Puts memory into a place of the table.
    ///
    /// # Safety
    /// The memory stays there until other memory was put into the place; or the iovec is empty.
    pub(super) unsafe fn set_place(&self, index: usize, iovec: libc::iovec) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.0.submitter().register_buffers_update(index as u32, &[iovec], None) }.is_ok()
    }
}
