//! Memory for tasks: blocks of slabs, which also list all tasks.
//!
//! A task costs its future plus 32 bytes, including the allocator's own share. So a task has no
//! pointer to its runtime, which is found from the task's address (`memory/slab`).
//!
//! A block is a task if its count is not 0. So a shutdown finds all remaining tasks without a list
//! of them.

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
    /// Whether one of them has seen a burst.
    burst: Cell<bool>,
}

pub(super) struct Tasks;

impl Kind for Tasks {
    type Owner = Shared;

    /// Large, because the allocator loses a page for each slab.
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
        // SAFETY: the block is ours, and has room for a header; the count is not its first word.
        unsafe { (&raw mut (*task).refs).write(AtomicU32::new(0)) };
    }
}

impl TaskMemory {
    pub(crate) fn new() -> TaskMemory {
        TaskMemory { classes: (0..CLASSES).map(|_| Lock::new(Class::new())).collect() }
    }

    /// Visits the tasks that have not ended, some that have, and perhaps some that start meanwhile.
    /// Takes no lock during a visit.
    pub(crate) fn each(&self, mut visit: impl FnMut(TaskRef)) {
        for class in &self.classes {
            // SAFETY: a block that was handed out once has a count, perhaps 0.
            slab::walk(class, |block| unsafe { TaskRef::retain_if_any(block.cast()) }, &mut visit);
        }
    }

    /// The number that the color of the task at that address has, or would have.
    pub(crate) fn id_at(&self, address: usize) -> Option<u64> {
        self.classes.iter().find_map(|class| class.lock().id_at(address))
    }
}

impl FreeTasks {
    pub(crate) fn new() -> FreeTasks {
        FreeTasks { lists: (0..CLASSES).map(|_| FreeList::new()).collect(), burst: Cell::new(false) }
    }

    /// For a worker without work: after a burst, gives memory back, one chain of blocks at a time.
    /// True if there may be more.
    pub(crate) fn give_back_some(&self, shared: &Shared) -> bool {
        let mut lists = self.lists.iter().enumerate();
        if self.burst.get() && !lists.any(|(class, list)| list.saw_burst() && list.give_back_some(shared, class)) {
            self.burst.set(false);
        }
        self.burst.get()
    }
}

/// The class for blocks of that size and alignment; `None` if they need an allocation of their own.
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

/// The number of the task's color, if the task is light.
pub(super) fn id_of(task: LiveTask<'_>) -> u64 {
    about(task).id_at(task.pointer().addr().get())
}

#[inline]
fn about(task: LiveTask<'_>) -> &About<Tasks> {
    // SAFETY: a task is in a block, which is in use as long as the task is alive.
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

/// Gives the memory of a task back; its count is 0 again.
pub(super) fn free(block: Block<Tasks>) {
    let left = context::offer_worker(block, |worker, block| {
        if !ptr::eq(&*worker.shared, block.about().owner()) {
            return Some(block);
        }
        let class = block.about().class();
        let list = &worker.free_tasks.lists[class];
        list.keep(block);
        // Avoids a division for each block.
        if list.trim(|len| len * Tasks::size_of_class(class) >= CHAIN_SIZE) {
            worker.free_tasks.burst.set(true);
        }
        None
    });
    if let Some(block) = left {
        slab::give_one(block);
    }
}

/// The least size of a task: its header, and room for an error.
const BLOCK_MIN: usize = size_of::<Header>() + 8;

/// Blocks up to this size come from slabs.
const BLOCK_MAX: usize = 2_048;

/// The step between block sizes.
const STEP: usize = 8;

/// A larger alignment needs an allocation of its own.
const BLOCK_ALIGN_MAX: usize = 16;

const CLASSES: usize = (BLOCK_MAX - BLOCK_MIN) / STEP + 1;

/// Bytes of blocks in a chain.
const CHAIN_SIZE: usize = 16 << 10;

const _: () = assert!(BLOCK_MIN.is_multiple_of(STEP));
