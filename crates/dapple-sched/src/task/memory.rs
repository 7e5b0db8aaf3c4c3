//! Memory for tasks: blocks of slabs, which also tell what tasks there are.
//!
//! A task is to cost its future and 32 bytes, the allocator's own share included: the runtime, which each task would otherwise
//! point to, is found by the task's address, see [`blocks`](super::blocks).
//!
//! Whether a block is a task is told by its count, which is 0 where it is free; so a shutdown finds all tasks that are left
//! without a list of them.

use std::ptr::{self, NonNull};

use super::blocks::{self, Blocks, Owner};
use super::{Header, LiveTask, TaskRef};
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::AtomicU32;

pub(crate) use super::blocks::{FreeTasks, class_of};

/// The tasks of one runtime.
pub(crate) type TaskMemory = Blocks<Shared>;

impl Owner for Shared {
    fn blocks(&self) -> &Blocks<Shared> {
        &self.tasks
    }

    fn fresh_ids(&self, count: u64) -> u64 {
        self.fresh_ids(count)
    }

    // SAFETY: the count is not in the first word.
    unsafe fn prepare(block: NonNull<u8>) {
        // SAFETY: a block of ours has room for a header.
        unsafe { Header::refs_of(block.cast()).write(AtomicU32::new(0)) };
    }
}

impl Blocks<Shared> {
    /// Visits the tasks that have not ended, and some that have; those that start meanwhile perhaps. Not under a lock.
    pub(crate) fn each(&self, visit: impl FnMut(TaskRef)) {
        // SAFETY: a block that was handed out once has a count, be it 0.
        self.walk(|block| unsafe { TaskRef::retain_if_any(block.cast()) }, visit);
    }
}

/// The runtime of a task.
#[inline]
pub(super) fn shared_of(task: LiveTask<'_>) -> &Shared {
    // SAFETY: a task is in a block, which is in use for as long as it is alive, and so keeps its owner.
    unsafe { &*blocks::owner_of(task.pointer().cast()) }
}

/// The number that the color of a task has, if it is a light one.
pub(super) fn id_of(task: LiveTask<'_>) -> u64 {
    // SAFETY: as in `shared_of`.
    unsafe { blocks::id_of::<Shared>(task.pointer().cast()) }
}

/// Memory for a task. Its count is 0.
#[inline]
pub(crate) fn alloc(shared: &Shared, class: usize) -> NonNull<u8> {
    let recycled =
        context::with_worker(|worker| ptr::eq(&*worker.shared, shared).then(|| worker.free_tasks.pop(shared, class)));
    recycled.flatten().unwrap_or_else(|| shared.tasks.take_one(shared, class))
}

/// Gives the memory of a task back.
///
/// # Safety
/// From [`alloc`] with this class, with a count of 0 and nothing else in it, and the caller's to give.
pub(crate) unsafe fn free(task: NonNull<Header>, class: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        let shared = blocks::owner_of::<Shared>(task.cast());
        let block = task.cast::<u8>();
        let kept = context::with_worker(|worker| {
            ptr::eq(&*worker.shared, shared) && {
                worker.free_tasks.push(shared, class, block);
                true
            }
        });
        if kept != Some(true) {
            Blocks::give_one(shared, class, block);
        }
    }
}
