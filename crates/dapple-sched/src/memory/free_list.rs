//! The free blocks of one size that a worker keeps. Only its own thread touches them.

use std::cell::Cell;

use super::slab::{self, Block, Chain, Kind};

/// It has up to two chains, so that a worker that frees and takes about a chain's length needs no
/// slabs (the magazines of Bonwick's slab allocator). The fresh blocks of a chain are contiguous
/// memory for one worker. If the blocks of two workers alternated, the workers would write to the
/// same lines, or prefetch lines that the other one is writing.
pub(crate) struct FreeList<K: Kind> {
    /// Blocks are taken from here and put here.
    freed: Chain<K>,
    /// A whole chain, or empty.
    spare: Chain<K>,
    /// Blocks passed on since memory was last given back.
    spilled: Cell<usize>,
}

impl<K: Kind> FreeList<K> {
    pub(crate) const fn new() -> FreeList<K> {
        FreeList { freed: Chain::new(), spare: Chain::new(), spilled: Cell::new(0) }
    }

    /// A block from this list, if it has one.
    #[inline]
    pub(crate) fn take(&self) -> Option<Block<K>> {
        self.freed.pop()
    }

    /// For an empty list: continues with a whole chain, the spare one or one of the owner's.
    /// Returns its first block.
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

    /// Puts a block on the list, which may grow too long until the caller calls [`FreeList::trim`].
    #[inline]
    pub(crate) fn keep(&self, block: Block<K>) {
        self.freed.push(block);
    }

    /// Makes room if the list's length is a whole chain. True if the blocks passed on so far are a
    /// burst.
    #[inline]
    pub(crate) fn trim(&self, is_chain: impl FnOnce(usize) -> bool) -> bool {
        is_chain(self.freed.len()) && self.spill()
    }

    /// The list becomes the spare chain, and the former spare chain is passed on.
    #[cold]
    fn spill(&self) -> bool {
        let passed_on = self.spare.replace(self.freed.take());
        self.spilled.set(self.spilled.get() + passed_on.len());
        slab::give_chain(passed_on);
        self.saw_burst()
    }

    /// Whether the blocks passed on are a burst.
    pub(crate) fn saw_burst(&self) -> bool {
        self.spilled.get() >= BURST
    }

    /// After a burst, gives some blocks kept here or in the store back to their slabs. False if
    /// none is left.
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

/// A worker that has passed on this many blocks, as many small ones as the store keeps, has seen a
/// burst.
const BURST: usize = 4_096;
