//! For loom, [`slab`] and [`FreeList`] alone: blocks with a count and a value, both of which loom
//! checks.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::free_list::FreeList;
use super::slab::{self, Class, Count, Kind};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::sync::lock::Lock;
use crate::sync::refs;

/// The blocks of one owner.
pub struct Blocks(Arc<Own>);

struct Own {
    class: Lock<Class<Model>>,
    this: Weak<Own>,
    /// Set when it is freed.
    gone: Arc<std::sync::atomic::AtomicBool>,
}

impl Drop for Own {
    fn drop(&mut self) {
        // Release: a thread that sees it also sees that the owner was dropped. Not a part of the
        // model.
        self.gone.store(true, Release);
    }
}

/// A slab has two blocks.
struct Model;

impl Kind for Model {
    type Owner = Own;

    const SLAB_SIZE: usize = 1 << 10;

    const ALIGN: usize = 64;

    fn size_of_class(_class: usize) -> usize {
        448
    }

    fn chain_len(_class: usize) -> usize {
        CHAIN_LEN
    }

    fn class(own: &Own, _class: usize) -> &Lock<Class<Model>> {
        &own.class
    }

    fn counted(own: &Own) -> Count<Own> {
        Count::Counted(own.this.upgrade().expect("it is used"))
    }

    fn prepare(block: &slab::Block<Model>) {
        let content = Content { link: 0, count: AtomicU32::new(0), value: UnsafeCell::new(FREE) };
        // SAFETY: the block is ours, and large enough.
        unsafe { block.pointer().cast::<Content>().write(content) };
    }
}

/// Laid out like a task's header.
#[repr(C)]
struct Content {
    /// The link of a free block.
    link: usize,
    count: AtomicU32,
    /// Stands for the future.
    value: UnsafeCell<u32>,
}

/// A counted reference to a block in use. The thread that drops the last one frees the block, as a
/// thread does that is not a worker.
pub struct Block(NonNull<Content>);

// SAFETY: the count is atomic; loom checks the accesses to the value.
unsafe impl Send for Block {}

/// The free blocks of one worker.
pub struct Keeper {
    owner: Arc<Own>,
    kept: FreeList<Model>,
}

impl Blocks {
    /// No blocks yet. `gone` is set when nothing has or uses them any more.
    pub fn new(gone: Arc<std::sync::atomic::AtomicBool>) -> Blocks {
        Blocks(Arc::new_cyclic(|this| Own { class: Lock::new(Class::new()), this: this.clone(), gone }))
    }

    /// A new worker's list.
    pub fn keeper(&self) -> Keeper {
        Keeper { owner: self.0.clone(), kept: FreeList::new() }
    }

    /// Takes a block, as a thread does that is not a worker.
    pub fn take(&self, value: u32) -> Block {
        Block::start(slab::take_one(&*self.0, 0), value)
    }

    /// Visits the blocks in use.
    pub fn walk(&self, visit: impl FnMut(Block)) {
        let look = |block: NonNull<u8>| {
            let block = block.cast::<Content>();
            // SAFETY: the block is prepared, and the lock keeps its slab. Acquire pairs with
            // `start`.
            refs::add_if_any(unsafe { &(*block.as_ptr()).count }, Acquire).then(|| Block(block))
        };
        slab::walk(&self.0.class, look, visit);
    }

    /// Number of slabs.
    pub fn slabs(&self) -> usize {
        self.0.class.lock().slabs()
    }
}

impl Keeper {
    /// Takes a block.
    pub fn take(&self, value: u32) -> Block {
        Block::start(self.kept.take().unwrap_or_else(|| self.kept.refill(&self.owner, 0)), value)
    }

    /// Drops a reference; the last one puts the block on this list.
    pub fn give(&self, block: Block) {
        if block.end() {
            self.kept.keep(block.memory());
            self.kept.trim(|len| len >= CHAIN_LEN);
        }
        std::mem::forget(block);
    }
}

impl Block {
    fn start(block: slab::Block<Model>, value: u32) -> Block {
        let block = Block(block.into_raw().cast());
        block.content().value.with_mut(|content| {
            // SAFETY: free, and ours; loom checks it.
            let old = unsafe { content.replace(value) };
            assert_eq!(old, FREE, "a block that is in use was handed out");
        });
        // Release pairs with the walk.
        block.content().count.store(1, Release);
        block
    }

    fn content(&self) -> &Content {
        // SAFETY: counted, or free and ours.
        unsafe { self.0.as_ref() }
    }

    /// The block, after the last reference.
    fn memory(&self) -> slab::Block<Model> {
        // SAFETY: the block that `start` was given; the last reference gives it up.
        unsafe { slab::Block::from_raw(self.0.cast()) }
    }

    /// The value that it was taken for.
    pub fn value(&self) -> u32 {
        // SAFETY: counted; only `start` and `end` write it, before and after. Loom checks it.
        self.content().value.with(|value| unsafe { *value })
    }

    /// Takes a reference away; true if it was the last one.
    fn end(&self) -> bool {
        // AcqRel: the last one sees the accesses of all others.
        let last = self.content().count.fetch_sub(1, AcqRel) == 1;
        if last {
            // SAFETY: the last reference; loom checks it.
            self.content().value.with_mut(|value| unsafe { *value = FREE });
        }
        last
    }
}

impl Clone for Block {
    fn clone(&self) -> Block {
        refs::add(&self.content().count);
        Block(self.0)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.end() {
            slab::give_one(self.memory());
        }
    }
}

const CHAIN_LEN: usize = 2;

/// The value of a free block.
const FREE: u32 = u32::MAX;
