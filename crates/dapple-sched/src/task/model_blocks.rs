//! [`blocks`](super::blocks) alone, for loom: blocks with a count and a value that loom sees.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::blocks::{self, FreeTasks, Owner};
use super::slab;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::sync::refs;

/// The blocks of one owner.
pub struct Blocks(Arc<Own>);

struct Own {
    blocks: blocks::Blocks<Own>,
    this: Weak<Own>,
    /// Set when it is freed.
    gone: Arc<std::sync::atomic::AtomicBool>,
}

impl Drop for Own {
    fn drop(&mut self) {
        // Release: a thread that sees it sees that the owner is gone. No part of the model.
        self.gone.store(true, Release);
    }
}

impl Owner for Own {
    fn blocks(&self) -> &blocks::Blocks<Own> {
        &self.blocks
    }

    fn fresh_ids(&self, _count: u64) -> u64 {
        0
    }

    fn counted(&self) -> Arc<Own> {
        self.this.upgrade().expect("it is used")
    }

    fn prepare(block: &slab::Block<Own>) {
        let content = Content { link: 0, count: AtomicU32::new(0), value: UnsafeCell::new(FREE) };
        // SAFETY: the caller's, and large enough.
        unsafe { block.pointer().cast::<Content>().write(content) };
    }
}

/// As a task's header.
#[repr(C)]
struct Content {
    /// That of a free block.
    link: usize,
    count: AtomicU32,
    /// The future, so to speak.
    value: UnsafeCell<u32>,
}

/// A counted reference to a block in use. The last one gives the block back, as a thread does that is no worker.
pub struct Block(NonNull<Content>);

// SAFETY: the count is atomic; loom checks the accesses to the value.
unsafe impl Send for Block {}

/// The free blocks of one worker.
pub struct Keeper {
    owner: Arc<Own>,
    kept: FreeTasks<Own>,
}

impl Blocks {
    /// None yet. `gone` is set when nothing has or uses them any more.
    pub fn new(gone: Arc<std::sync::atomic::AtomicBool>) -> Blocks {
        Blocks(Arc::new_cyclic(|this| Own { blocks: blocks::Blocks::new(), this: this.clone(), gone }))
    }

    /// What a worker has.
    pub fn keeper(&self) -> Keeper {
        Keeper { owner: self.0.clone(), kept: FreeTasks::new() }
    }

    /// Takes a block as a thread does that is no worker.
    pub fn take(&self, value: u32) -> Block {
        Block::start(blocks::Blocks::take_one(&*self.0, CLASS), value)
    }

    /// Visits the blocks in use.
    pub fn walk(&self, visit: impl FnMut(Block)) {
        let look = |block: NonNull<u8>| {
            let block = block.cast::<Content>();
            // SAFETY: prepared, and under the lock its slab stays. Acquire pairs with `start`.
            refs::add_if_any(unsafe { &(*block.as_ptr()).count }, Acquire).then(|| Block(block))
        };
        self.0.blocks.walk(look, visit);
    }

    /// How many slabs there are.
    pub fn slabs(&self) -> usize {
        self.0.blocks.slabs(CLASS)
    }
}

impl Keeper {
    /// Takes a block.
    pub fn take(&self, value: u32) -> Block {
        Block::start(self.kept.pop(&*self.owner, CLASS), value)
    }

    /// Drops a reference; the last one leaves the block here.
    pub fn give(&self, block: Block) {
        if block.end() {
            self.kept.push(block.memory());
        }
        std::mem::forget(block);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.kept.give_all();
    }
}

impl Block {
    fn start(block: slab::Block<Own>, value: u32) -> Block {
        let block = Block(block.into_raw().cast());
        block.content().value.with_mut(|content| {
            // SAFETY: free, and the caller's; loom checks it.
            let old = unsafe { content.replace(value) };
            assert_eq!(old, FREE, "a block that is in use was handed out");
        });
        // Release pairs with the walk.
        block.content().count.store(1, Release);
        block
    }

    fn content(&self) -> &Content {
        // SAFETY: counted, or free and the caller's.
        unsafe { self.0.as_ref() }
    }

    /// After the last reference.
    fn memory(&self) -> slab::Block<Own> {
        // SAFETY: what `start` was given, and given up by the last reference.
        unsafe { slab::Block::from_raw(self.0.cast()) }
    }

    /// What it was taken for.
    pub fn value(&self) -> u32 {
        // SAFETY: counted: only `start` and `end` write it, before and after; loom checks it.
        self.content().value.with(|value| unsafe { *value })
    }

    /// Takes a reference away; true if that was the last one.
    fn end(&self) -> bool {
        // AcqRel: the last one sees what all others did.
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
            blocks::Blocks::give_one(self.memory());
        }
    }
}

const CLASS: usize = 0;

/// The value of a free block.
const FREE: u32 = u32::MAX;
