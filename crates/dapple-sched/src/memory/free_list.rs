//! The free blocks of one size that a worker keeps. Only its own thread touches them.

use std::cell::Cell;

use super::slab::{self, Block, Chain, Kind};

/// Up to two chains, so that a worker which frees and takes around a chain's length needs the slabs for neither (the magazines
/// of Bonwick's slab allocator). Where blocks of a chain are fresh they are a stretch of memory of the worker's own: two workers
/// would write to the same lines all the time whose blocks lie between each other's, or fetch ahead what the other one is
/// writing.
pub(crate) struct FreeList<K: Kind> {
    /// Blocks are taken from here, and put here.
    freed: Chain<K>,
    /// A whole chain, or nothing.
    spare: Chain<K>,
    /// Blocks passed on since memory was last given back.
    spilled: Cell<usize>,
}

impl<K: Kind> FreeList<K> {
    pub(crate) const fn new() -> FreeList<K> {
        FreeList { freed: Chain::new(), spare: Chain::new(), spilled: Cell::new(0) }
    }

    /// A block that is here.
    #[inline]
    pub(crate) fn take(&self) -> Option<Block<K>> {
        self.freed.pop()
    }

    /// Goes on with a whole chain, the spare one or one of the owner's; returns the first block of it. For a list that is empty.
    #[cold]
    pub(crate) fn refill(&self, owner: &K::Owner, class: usize) -> Block<K> {
        let spare = self.spare.take();
        let (block, rest) = match spare.pop() {
            Some(block) => (block, spare),
            None => slab::take_chain(owner, class),
        };
        slab::give(self.freed.replace(rest));
        block
    }

    /// Puts a block on the list, which may grow longer than it should: [`FreeList::trim`] is called soon.
    #[inline]
    pub(crate) fn keep(&self, block: Block<K>) {
        self.freed.push(block);
    }

    /// Makes room where the list, of such a length, is a whole chain. True: that was, by now, a burst.
    #[inline]
    pub(crate) fn trim(&self, is_chain: impl FnOnce(usize) -> bool) -> bool {
        is_chain(self.freed.len()) && self.spill()
    }

    /// What is in the list becomes the spare chain, and what that was is passed on.
    #[cold]
    fn spill(&self) -> bool {
        let passed_on = self.spare.replace(self.freed.take());
        self.spilled.set(self.spilled.get() + passed_on.len());
        slab::give_chain(passed_on);
        self.saw_burst()
    }

    /// Whether much was passed on.
    pub(crate) fn saw_burst(&self) -> bool {
        self.spilled.get() >= BURST
    }

    /// After a burst, gives some of what is kept here or in the store back to its slabs. False: nothing is left.
    pub(crate) fn give_back_some(&self, owner: &K::Owner, class: usize) -> bool {
        let kept = if self.freed.len() > 0 { &self.freed } else { &self.spare };
        if kept.len() > 0 {
            slab::give(kept.take());
            return true;
        }
        let stored = slab::give_back_stored::<K>(owner, class);
        if !stored {
            self.spilled.set(0);
        }
        stored
    }
}

impl<K: Kind> Drop for FreeList<K> {
    fn drop(&mut self) {
        slab::give(self.freed.take());
        slab::give(self.spare.take());
    }
}

/// A worker that has passed on so many blocks, as many as the store keeps small ones, has seen a burst.
const BURST: usize = 4_096;
