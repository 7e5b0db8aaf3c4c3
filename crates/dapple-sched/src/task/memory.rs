//! Memory for tasks: blocks of slabs, which also tell what tasks there are.
//!
//! A task is to cost its future and 32 bytes, the allocator's own share included: the runtime, which each task would otherwise
//! point to, is found by the task's address (`memory/slab`).
//!
//! Whether a block is a task is told by its count, which is 0 where it is free; so a shutdown finds all tasks that are left
//! without a list of them.

use std::cell::Cell;
use std::ptr;

use super::{Header, LiveTask, TaskRef};
use crate::memory::free_list::FreeList;
use crate::memory::slab::{self, About, Block, Class, Count, Kind};
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::AtomicU32;
use crate::sync::lock::Lock;

/// The tasks of one runtime.
pub(crate) struct TaskMemory {
    classes: Box<[Lock<Class<Tasks>>]>,
}

/// The free blocks of one worker.
pub(crate) struct FreeTasks {
    lists: Box<[FreeList<Tasks>]>,
    /// One of them has seen a burst.
    burst: Cell<bool>,
}

pub(super) struct Tasks;

impl Kind for Tasks {
    type Owner = Shared;

    /// Large, as the allocator loses a page for each.
    const SLAB_SIZE: usize = 1 << 20;

    const ALIGN: usize = BLOCK_ALIGN_MAX;

    fn size_of_class(class: usize) -> usize {
        BLOCK_MIN + class * STEP
    }

    fn chain_len(class: usize) -> usize {
        CHAIN_SIZE / Tasks::size_of_class(class)
    }

    fn class(shared: &Shared, class: usize) -> &Lock<Class<Tasks>> {
        &shared.tasks.classes[class]
    }

    fn counted(shared: &Shared) -> Count<Shared> {
        Count::Counted(shared.counted())
    }

    fn fresh_ids(shared: &Shared, count: u64) -> u64 {
        shared.fresh_ids(count)
    }

    fn prepare(block: &Block<Tasks>) {
        let task = block.pointer().cast::<Header>().as_ptr();
        // SAFETY: the block is ours, and has room for a header, of which the count is not the first word.
        unsafe { (&raw mut (*task).refs).write(AtomicU32::new(0)) };
    }
}

impl TaskMemory {
    pub(crate) fn new() -> TaskMemory {
        TaskMemory { classes: (0..CLASSES).map(|_| Lock::new(Class::new())).collect() }
    }

    /// Visits the tasks that have not ended, and some that have; those that start meanwhile perhaps. Not under a lock.
    pub(crate) fn each(&self, mut visit: impl FnMut(TaskRef)) {
        for class in &self.classes {
            // SAFETY: a block that was handed out once has a count, be it 0.
            slab::walk(class, |block| unsafe { TaskRef::retain_if_any(block.cast()) }, &mut visit);
        }
    }

    /// The number that the color of the task at an address has, or would have.
    pub(crate) fn id_at(&self, address: usize) -> Option<u64> {
        self.classes.iter().find_map(|class| class.lock().id_at(address))
    }
}

impl FreeTasks {
    pub(crate) fn new() -> FreeTasks {
        FreeTasks { lists: (0..CLASSES).map(|_| FreeList::new()).collect(), burst: Cell::new(false) }
    }

    /// For a worker without work: after a burst, gives memory back, a chain of blocks at a time. True: there may be more.
    pub(crate) fn give_back_some(&self, shared: &Shared) -> bool {
        let mut lists = self.lists.iter().enumerate();
        if self.burst.get() && !lists.any(|(class, list)| list.saw_burst() && list.give_back_some(shared, class)) {
            self.burst.set(false);
        }
        self.burst.get()
    }
}

/// The class for blocks of so many bytes and that alignment; `None` where they need an allocation of their own.
pub(super) const fn class_of(size: usize, align: usize) -> Option<usize> {
    let step = if align > STEP { BLOCK_ALIGN_MAX } else { STEP };
    let size = size.next_multiple_of(step);
    if size > BLOCK_MAX || align > BLOCK_ALIGN_MAX { None } else { Some((size - BLOCK_MIN) / STEP) }
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
fn about(task: LiveTask<'_>) -> &About<Tasks> {
    // SAFETY: a task is in a block, which is in use for as long as it is alive.
    unsafe { About::of(task.pointer().cast()) }
}

/// Memory for a task. Its count is 0.
#[inline]
pub(super) fn alloc(shared: &Shared, class: usize) -> Block<Tasks> {
    let recycled = context::with_worker_of(shared, |worker| {
        let list = &worker?.free_tasks.lists[class];
        Some(list.take().unwrap_or_else(|| list.refill(shared, class)))
    });
    recycled.unwrap_or_else(|| slab::take_one(shared, class))
}

/// Gives the memory of a task back, whose count is 0 again.
pub(super) fn free(block: Block<Tasks>) {
    let left = context::offer_worker(block, |worker, block| {
        if !ptr::eq(&*worker.shared, block.about().owner()) {
            return Some(block);
        }
        let class = block.about().class();
        let list = &worker.free_tasks.lists[class];
        list.keep(block);
        // Rather than a division for each.
        if list.trim(|len| len * Tasks::size_of_class(class) >= CHAIN_SIZE) {
            worker.free_tasks.burst.set(true);
        }
        None
    });
    if let Some(block) = left {
        slab::give_one(block);
    }
}

/// The least that a task takes: its header, and room for an error.
const BLOCK_MIN: usize = size_of::<Header>() + 8;

/// Blocks up to this size come from slabs.
const BLOCK_MAX: usize = 2_048;

/// From one size of block to the next.
const STEP: usize = 8;

/// What is aligned to more has an allocation of its own.
const BLOCK_ALIGN_MAX: usize = 16;

const CLASSES: usize = (BLOCK_MAX - BLOCK_MIN) / STEP + 1;

/// A chain has so many bytes of blocks.
const CHAIN_SIZE: usize = 16 << 10;

const _: () = assert!(BLOCK_MIN.is_multiple_of(STEP));
