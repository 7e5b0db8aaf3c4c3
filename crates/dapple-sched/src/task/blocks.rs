//! Blocks for tasks, from slabs of one size of block each.
//!
//! Blocks come in steps of 8 bytes, and a slab of a megabyte, which begins at a multiple of its size, has one header for all
//! of them: their owner, a runtime, and the number of a block are found by its address. Pages of a slab become resident when
//! they are first used.
//!
//! All under the class's lock; the slabs themselves are in `slab`. A slab of which a block is in use keeps the runtime
//! alive. Workers keep a few free blocks of each class; these count as used.
//!
//! Generic over the owner, so that loom's models run this code with blocks that they can look into.

use std::cell::Cell;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Header;
use super::slab::{Block, Chain, Class, MODEL, Place, Slab};
use crate::sync::lock::Lock;

/// What blocks belong to: slabs with a block in use count on it.
pub(crate) trait Owner: Send + Sync + Sized {
    fn blocks(&self) -> &Blocks<Self>;

    /// A count on it.
    fn counted(&self) -> Arc<Self>;

    /// The first of so many numbers that nothing else of it has.
    fn fresh_ids(&self, count: u64) -> u64;

    /// Makes a block that was never handed out one that [`Blocks::walk`] may visit. Its first word is not the owner's to use
    /// while the block is free.
    fn prepare(block: &Block<Self>);
}

/// All blocks of one owner.
pub(crate) struct Blocks<R> {
    classes: Box<[Lock<Class<R>>]>,
}

/// The free blocks of one worker. Only its own thread touches them.
pub(crate) struct FreeTasks<R> {
    lists: Box<[FreeList<R>]>,
    /// Blocks given back to the slabs since the last burst was cleaned up.
    spilled: Cell<usize>,
}

struct FreeList<R> {
    /// What this worker has freed.
    freed: Chain<R>,
    len: Cell<usize>,
    /// What it got from the slabs: a stretch of memory of its own where the blocks are fresh, as two workers would write to
    /// the same lines all the time whose tasks lie between each other's, or fetch ahead what the other one is writing.
    stock: Chain<R>,
}

/// The class for blocks of so many bytes and that alignment; `None` where they need an allocation of their own.
pub(crate) const fn class_of(size: usize, align: usize) -> Option<usize> {
    let step = if align > STEP { BLOCK_ALIGN_MAX } else { STEP };
    let size = size.next_multiple_of(step);
    if size > BLOCK_MAX || align > BLOCK_ALIGN_MAX { None } else { Some((size - BLOCK_MIN) / STEP) }
}

pub(super) const fn size_of_class(class: usize) -> usize {
    BLOCK_MIN + class * STEP
}

impl<R: Owner> Blocks<R> {
    pub(crate) fn new() -> Blocks<R> {
        Blocks { classes: (0..CLASSES).map(|_| Lock::new(Class::new())).collect() }
    }

    /// Visits what `look` finds in the blocks that were handed out once, some of which are free; those that are handed out
    /// meanwhile perhaps. `look` runs under a lock, and keeps its block from being given back as long as what it returns is
    /// there; `visit` does not.
    pub(super) fn walk<T: Clone>(&self, mut look: impl FnMut(NonNull<u8>) -> Option<T>, mut visit: impl FnMut(T)) {
        for class in &self.classes {
            let mut place = Place::first();
            // Kept until the next stretch was taken, so that the slab is still there.
            let mut last: Option<T> = None;
            loop {
                let mut found = Vec::with_capacity(STRETCH);
                let more = class.lock().look(&mut place, &mut found, &mut look);
                drop(std::mem::replace(&mut last, found.last().cloned()));
                found.into_iter().for_each(&mut visit);
                if !more {
                    break;
                }
            }
        }
    }

    /// How many slabs there are of a class.
    #[cfg(dapple_loom)]
    pub(crate) fn slabs(&self, class: usize) -> usize {
        self.classes[class].lock().slabs.len()
    }

    /// The number that the color of the task at an address has, or would have.
    pub(crate) fn id_at(&self, address: usize) -> Option<u64> {
        self.classes.iter().find_map(|class| class.lock().id_at(address))
    }

    /// One block.
    pub(crate) fn take_one(owner: &R, class: usize) -> Block<R> {
        Blocks::take(owner, class, Wanted::One).0
    }

    /// A block, and those behind it.
    #[inline(never)]
    fn take(owner: &R, class: usize, wanted: Wanted) -> (Block<R>, Chain<R>) {
        let slabs = &owner.blocks().classes[class];
        loop {
            let taken = slabs.lock().take(owner, wanted);
            if let Some(block) = taken.pop() {
                return (block, taken);
            }
            let slab = Slab::new(owner, class);
            slabs.lock().add(slab);
        }
    }

    /// Gives blocks back.
    pub(super) fn give(chain: Chain<R>) {
        let mut next = chain.pop();
        while let Some(block) = next {
            let (owner, class) = (NonNull::from(block.about().owner()), block.about().class);
            // SAFETY: the block keeps the owner, and then what its slab lets go of does.
            let mut slabs = unsafe { owner.as_ref() }.blocks().classes[class].lock();
            let mut unused = slabs.give(block);
            next = chain.pop();
            while unused.is_none()
                && let Some(block) = next.take_if(|block| block.about().is_of(owner, class))
            {
                unused = slabs.give(block);
                next = chain.pop();
            }
            let unused = unused.map(|slab| slabs.let_go(slab));
            drop(slabs);
            // Perhaps the end of the owner, so that nothing here borrows it.
            drop(unused);
        }
    }

    /// Gives one block back.
    pub(super) fn give_one(block: Block<R>) {
        let chain = Chain::new();
        chain.push(block);
        Blocks::give(chain);
    }
}

impl<R: Owner> FreeList<R> {
    fn new() -> FreeList<R> {
        FreeList { freed: Chain::new(), len: Cell::new(0), stock: Chain::new() }
    }

    #[inline]
    fn pop(&self, owner: &R, class: usize) -> Block<R> {
        if let Some(block) = self.freed.pop() {
            self.len.set(self.len.get() - 1);
            return block;
        }
        self.stock.pop().unwrap_or_else(|| {
            let (block, rest) = Blocks::take(owner, class, Wanted::Stock);
            self.stock.fill(rest);
            block
        })
    }
}

impl<R: Owner> FreeTasks<R> {
    pub(crate) fn new() -> FreeTasks<R> {
        FreeTasks { lists: (0..CLASSES).map(|_| FreeList::new()).collect(), spilled: Cell::new(0) }
    }

    /// A block, of those that are kept or a new one.
    #[inline]
    pub(crate) fn pop(&self, owner: &R, class: usize) -> Block<R> {
        self.lists[class].pop(owner, class)
    }

    /// Keeps a block, which is of the owner that all blocks here are of; where there are many already, gives those back.
    #[inline]
    pub(crate) fn push(&self, block: Block<R>) {
        let list = &self.lists[block.about().class];
        if list.len.get() >= KEPT_MAX {
            self.spilled.set(self.spilled.get() + list.len.replace(0));
            Blocks::give(list.freed.take());
        }
        list.freed.push(block);
        list.len.set(list.len.get() + 1);
    }

    /// For a worker without work: after a burst, gives back what it keeps.
    pub(crate) fn give_back(&self) {
        if self.spilled.get() >= BURST {
            self.spilled.set(0);
            self.give_all();
        }
    }

    /// Gives back all that is kept.
    pub(crate) fn give_all(&self) {
        for list in &self.lists {
            list.len.set(0);
            Blocks::give(list.freed.take());
            Blocks::give(list.stock.take());
        }
    }
}

/// How many blocks are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    One,
    /// What a worker keeps.
    Stock,
}

impl Wanted {
    pub(super) fn freed(self) -> usize {
        if self == Wanted::One { 1 } else { KEPT_MAX / 2 }
    }

    pub(super) fn fresh(self, block_size: usize) -> usize {
        if self == Wanted::One { 1 } else { STOCK / block_size }
    }
}

/// The least that a task takes: its header, and room for an error.
const BLOCK_MIN: usize = if MODEL { 448 } else { mem::size_of::<Header>() + 8 };

/// Blocks up to this size come from slabs.
const BLOCK_MAX: usize = if MODEL { BLOCK_MIN } else { 2_048 };

/// From one size of block to the next.
const STEP: usize = 8;

/// What is aligned to more has an allocation of its own.
const BLOCK_ALIGN_MAX: usize = 16;

const CLASSES: usize = (BLOCK_MAX - BLOCK_MIN) / STEP + 1;

/// A worker keeps at most so many blocks of a class that it has freed,
const KEPT_MAX: usize = if MODEL { 2 } else { 64 };

/// ... and gets so many bytes of fresh ones.
const STOCK: usize = if MODEL { BLOCK_MIN } else { 16 << 10 };

/// So many blocks that went back to their slabs are a burst.
const BURST: usize = 4_096;

/// Tasks that a walk takes at once.
pub(super) const STRETCH: usize = 64;

const _: () = assert!(BLOCK_MIN.is_multiple_of(STEP));
