//! Memory for tasks: blocks of slabs, which also tell what tasks there are.
//!
//! A task is to cost its future and 32 bytes, the allocator's own share included: the runtime, which each task would otherwise
//! point to, is found by the task's address, see [`blocks`](super::blocks).
//!
//! Whether a block is a task is told by its count, which is 0 where it is free; so a shutdown finds all tasks that are left
//! without a list of them.

use std::ptr;
use std::sync::Arc;

use super::blocks::{self, Blocks, Owner};
use super::slab::{About, Block};
use super::{Header, LiveTask, TaskRef};
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::AtomicU32;

pub(super) use super::blocks::class_of;

/// The tasks of one runtime.
pub(crate) type TaskMemory = Blocks<Shared>;

/// The free blocks of one worker.
pub(crate) type FreeTasks = blocks::FreeTasks<Shared>;

impl Owner for Shared {
    fn blocks(&self) -> &Blocks<Shared> {
        &self.tasks
    }

    fn fresh_ids(&self, count: u64) -> u64 {
        self.fresh_ids(count)
    }

    fn counted(&self) -> Arc<Shared> {
        self.counted()
    }

    fn prepare(block: &Block<Shared>) {
        let task = block.pointer().cast::<Header>().as_ptr();
        // SAFETY: the block is ours, and has room for a header, of which the count is not the first word.
        unsafe { (&raw mut (*task).refs).write(AtomicU32::new(0)) };
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
    about(task).owner()
}

/// The number that the color of a task has, if it is a light one.
pub(super) fn id_of(task: LiveTask<'_>) -> u64 {
    about(task).id_at(task.pointer().addr().get())
}

#[inline]
fn about(task: LiveTask<'_>) -> &About<Shared> {
    // SAFETY: a task is in a block, which is in use for as long as it is alive.
    unsafe { About::of(task.pointer().cast()) }
}

/// Memory for a task. Its count is 0.
#[inline]
pub(super) fn alloc(shared: &Shared, class: usize) -> Block<Shared> {
    let recycled =
        context::with_worker(|worker| ptr::eq(&*worker.shared, shared).then(|| worker.free_tasks.pop(shared, class)));
    recycled.flatten().unwrap_or_else(|| Blocks::take_one(shared, class))
}

/// Gives the memory of a task back, whose count is 0 again.
pub(super) fn free(block: Block<Shared>) {
    let left = context::offer_worker(block, |worker, block| {
        if !ptr::eq(&*worker.shared, block.about().owner()) {
            return Some(block);
        }
        worker.free_tasks.push(block);
        None
    });
    if let Some(block) = left {
        Blocks::give_one(block);
    }
}
