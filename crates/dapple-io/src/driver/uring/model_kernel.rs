//! The kernel's side of a ring in a model, on the model's [system](crate::model). It has no table
//! of buffers.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use io_uring::squeue;

use super::setup::{Limits, Refused};
use crate::model::system;
use crate::sync::yield_now;

pub(super) struct Kernel {
    /// The data of each entry, and for a cancellation the data of its target.
    queue: VecDeque<(u64, Option<u64>)>,
}

impl Kernel {
    pub(super) fn new(_limits: Limits) -> Result<Kernel, Refused> {
        Ok(Kernel { queue: VecDeque::new() })
    }

    pub(super) fn fd(&self) -> RawFd {
        RING_FD
    }

    /// # Safety
    /// None is needed: the entry is never executed.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        self.add(entry.get_user_data(), None)
    }

    pub(super) fn push_cancel(&mut self, target: u64, data: u64) -> bool {
        self.add(data, Some(target))
    }

    fn add(&mut self, data: u64, target: Option<u64>) -> bool {
        let has_room = self.queue.len() < ROOM;
        if has_room {
            self.queue.push_back((data, target));
        }
        has_room
    }

    pub(super) fn submit(&mut self) -> bool {
        if !self.queue.is_empty() {
            system(|system| self.queue.drain(..).for_each(|(data, target)| system.begin_call(data, target)));
        }
        true
    }

    pub(super) fn completion(&mut self) -> Option<(u64, i32)> {
        system(|system| system.completed.pop_front())
    }

    pub(super) fn wait_briefly(&mut self) {
        self.submit();
        yield_now();
    }

    pub(super) fn make_table(&self, _places: u16) -> bool {
        false
    }

    /// # Safety
    /// None is needed: there is no table.
    pub(super) unsafe fn set_place(&self, _index: usize, _iovec: libc::iovec) -> bool {
        false
    }
}

/// No descriptor of the process has this number.
const RING_FD: RawFd = 1 << 30;
/// Room in the submission queue.
const ROOM: usize = 2;
