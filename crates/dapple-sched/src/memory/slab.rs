//! Where blocks come from: slabs of one size of block each, shared by all runtimes of the process.
//!
//! The allocator needs 80 to 192 bytes for 64 that start on a cache line of their own; a slab, 64.3, and its share of a
//! region (`region.rs`) one more. Workers take and give back whole chains (`block.rs`), so its lock is seldom taken by
//! them; threads that are no workers take one block at a time. A slab of which no block is in use goes back to its region,
//! but for one that is kept.
//!
//! # A slab
//!
//! | | in the list of the store | next |
//! |---|---|---|
//! | some blocks free | yes | the last one taken: out of the list; the last one given back: to its region, or kept as the spare |
//! | none free | no | one given back: into the list |
//!
//! All under the store's lock. The slab of a block is found by its address: slabs are aligned to their size.

use std::ptr::{self, NonNull};

use crate::memory::block::{CHAIN_LEN, Free};
use crate::memory::region::{Piece, Region, Regions, SLAB_SIZE};
use crate::sync::lock::Lock;

/// Slabs of one size of block.
pub(crate) struct Store {
    block_size: usize,
    regions: &'static Regions,
    state: Lock<State>,
}

struct State {
    /// Whole chains of free blocks, as workers gave them.
    chains: [*mut Free; CHAINS_MAX],
    chains_len: usize,
    /// What is left of a chain of which single blocks are taken.
    loose: *mut Free,
    /// Slabs with free blocks.
    partial: *mut Slab,
    /// Slabs in all.
    slabs: usize,
}

// SAFETY: chains and slabs are owned by the store and touched under its lock.
unsafe impl Send for State {}

/// The first block of a slab.
struct Slab {
    prev: *mut Slab,
    next: *mut Slab,
    region: NonNull<Region>,
    free: *mut Free,
    /// Blocks that were handed out at least once, the header among them.
    fresh: u32,
    /// Blocks in use.
    used: u32,
}

impl Store {
    pub(crate) const fn new(block_size: usize, regions: &'static Regions) -> Store {
        let (chains, loose, partial) = ([ptr::null_mut(); CHAINS_MAX], ptr::null_mut(), ptr::null_mut());
        Store { block_size, regions, state: Lock::new(State { chains, chains_len: 0, loose, partial, slabs: 0 }) }
    }

    /// One free block.
    pub(crate) fn take(&self) -> NonNull<Free> {
        loop {
            let block = self.state.lock().take_one(self.block_size);
            match block {
                Some(block) => return block,
                None => self.grow(),
            }
        }
    }

    /// A chain of free blocks: one that a worker gave, or a fresh one of [`CHAIN_LEN`].
    ///
    /// Not in the order of their addresses. A color's callbacks go round through its blocks, and whoever walks through
    /// memory in equal steps has the processor fetch what is behind the last one, which may be what another worker is
    /// writing: of 64 runs of W1 with 64 in flight on two workers nine took 18 to 25 ns of CPU instead of 14; of 40 in
    /// this order none.
    pub(super) fn take_chain(&self) -> *mut Free {
        let (mut blocks, mut len) = ([ptr::null_mut(); CHAIN_LEN], 0);
        while len < CHAIN_LEN {
            let mut state = self.state.lock();
            if len == 0
                && let Some(last) = state.chains_len.checked_sub(1)
            {
                state.chains_len = last;
                return state.chains[last];
            }
            while len < CHAIN_LEN
                && let Some(block) = state.take(self.block_size)
            {
                blocks[len] = block.as_ptr();
                len += 1;
            }
            drop(state);
            if len < CHAIN_LEN {
                self.grow();
            }
        }
        (0..CHAIN_LEN).fold(ptr::null_mut(), |next, at| {
            let block: *mut Free = blocks[at * CHAIN_STEP % CHAIN_LEN];
            // SAFETY: free, and ours; each of them once, as the step has no factor in common with the length.
            unsafe { block.write(Free { next, chain_len: CHAIN_LEN }) };
            block
        })
    }

    /// # Safety
    /// The chain is the caller's to give: free blocks of this store.
    pub(super) unsafe fn give_chain(&self, head: *mut Free) {
        let mut state = self.state.lock();
        if state.chains_len < CHAINS_MAX {
            let at = state.chains_len;
            state.chains[at] = head;
            state.chains_len += 1;
            return;
        }
        drop(state);
        // SAFETY: promised by the caller.
        unsafe { self.give_all(head) };
    }

    /// Gives what is kept for workers back to the slabs, a chain at a time. False: nothing is kept.
    pub(super) fn give_back_chain(&self) -> bool {
        let mut state = self.state.lock();
        let mut head = state.loose;
        if !head.is_null() {
            state.loose = ptr::null_mut();
        } else if let Some(last) = state.chains_len.checked_sub(1) {
            state.chains_len = last;
            head = state.chains[last];
        }
        drop(state);
        // SAFETY: blocks of a chain are free, and this one was taken out of the store.
        unsafe { self.give_all(head) };
        !head.is_null()
    }

    /// # Safety
    /// As [`Store::give_chain`], for a list of any length.
    pub(crate) unsafe fn give_all(&self, head: *mut Free) {
        let mut rest = head;
        while let Some(block) = NonNull::new(rest) {
            // SAFETY: promised by the caller.
            unsafe {
                rest = block.as_ref().next;
                self.give(block);
            }
        }
    }

    /// # Safety
    /// The block is the caller's to give: a free block of this store.
    pub(crate) unsafe fn give(&self, block: NonNull<Free>) {
        // SAFETY: promised by the caller.
        let unused = unsafe { self.state.lock().give(block) };
        if let Some(slab) = unused {
            // SAFETY: taken in `grow`; none of its blocks is in use, and it is in no list.
            unsafe { self.regions.give(Piece { start: slab.cast(), region: slab.as_ref().region }) };
        }
    }

    #[cold]
    fn grow(&self) {
        let Piece { start, region } = self.regions.take();
        let slab = start.cast::<Slab>();
        let (prev, next, free) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let header = Slab { prev, next, region, free, fresh: 1, used: 0 };
        // SAFETY: ours, aligned, and large enough for its header.
        unsafe { slab.write(header) };
        let mut state = self.state.lock();
        state.slabs += 1;
        // SAFETY: in no list, and with free blocks.
        unsafe { state.link(slab) };
    }
}

impl State {
    /// A block of a slab, or else of a chain: before there are more slabs, what workers have freed is used again.
    fn take_one(&mut self, block_size: usize) -> Option<NonNull<Free>> {
        if self.loose.is_null() {
            if let Some(block) = self.take(block_size) {
                return Some(block);
            }
            self.chains_len = self.chains_len.checked_sub(1)?;
            self.loose = self.chains[self.chains_len];
        }
        let block = NonNull::new(self.loose)?;
        // SAFETY: blocks of a chain are free, and hold a link.
        self.loose = unsafe { block.as_ref().next };
        Some(block)
    }

    fn take(&mut self, block_size: usize) -> Option<NonNull<Free>> {
        let mut slab = NonNull::new(self.partial)?;
        // SAFETY: slabs in the list are the store's, and have free blocks; `fresh` ones were never handed out.
        unsafe {
            let header = slab.as_mut();
            let block = match NonNull::new(header.free) {
                Some(block) => {
                    header.free = block.as_ref().next;
                    block
                }
                None => {
                    let block = slab.cast::<u8>().add(header.fresh as usize * block_size).cast();
                    header.fresh += 1;
                    block
                }
            };
            header.used += 1;
            if header.free.is_null() && (header.fresh as usize + 1) * block_size > SLAB_SIZE {
                self.unlink(slab);
            }
            Some(block)
        }
    }

    /// # Safety
    /// As [`Store::give`]. A slab that is returned is the caller's.
    unsafe fn give(&mut self, block: NonNull<Free>) -> Option<NonNull<Slab>> {
        let mut slab: NonNull<Slab> = block.cast::<Slab>().map_addr(|addr| {
            // The header is the first block, which is never handed out, so the address is not null.
            std::num::NonZero::new(addr.get() & !(SLAB_SIZE - 1)).expect("a slab does not begin at address 0")
        });
        // SAFETY: promised by the caller; slabs are aligned to their size.
        unsafe {
            let header = slab.as_mut();
            let was_full = header.prev.is_null() && header.next.is_null() && !ptr::eq(self.partial, slab.as_ptr());
            (&raw mut (*block.as_ptr()).next).write(header.free);
            header.free = block.as_ptr();
            header.used -= 1;
            if header.used == 0 && self.slabs > 1 {
                if !was_full {
                    self.unlink(slab);
                }
                self.slabs -= 1;
                return Some(slab);
            }
            if was_full {
                self.link(slab);
            }
        }
        None
    }

    /// # Safety
    /// The slab is the store's, and in no list.
    unsafe fn link(&mut self, mut slab: NonNull<Slab>) {
        // SAFETY: promised by the caller; the head is in the list.
        unsafe {
            slab.as_mut().prev = ptr::null_mut();
            slab.as_mut().next = self.partial;
            if let Some(head) = self.partial.as_mut() {
                head.prev = slab.as_ptr();
            }
        }
        self.partial = slab.as_ptr();
    }

    /// # Safety
    /// The slab is in the list.
    unsafe fn unlink(&mut self, mut slab: NonNull<Slab>) {
        // SAFETY: promised by the caller; neighbors are in the list.
        unsafe {
            let (prev, next) = (slab.as_ref().prev, slab.as_ref().next);
            match prev.as_mut() {
                Some(prev) => prev.next = next,
                None => self.partial = next,
            }
            if let Some(next) = next.as_mut() {
                next.prev = prev;
            }
            slab.as_mut().prev = ptr::null_mut();
            slab.as_mut().next = ptr::null_mut();
        }
    }
}

/// From one block of a fresh chain to the next.
const CHAIN_STEP: usize = 37;

/// Chains that are kept for workers: 4,096 blocks.
const CHAINS_MAX: usize = 64;

const _: () = assert!(size_of::<Slab>() <= 64, "a header takes one block");

#[cfg(test)]
mod tests {
    use super::*;

    /// Static, as the real ones, so that what they keep is not a leak.
    static REGIONS: Regions = Regions::new();
    static STORES: [Store; 2] = [Store::new(64, &REGIONS), Store::new(256, &REGIONS)];

    #[test]
    fn blocks_are_apart_and_come_back() {
        for store in &STORES {
            let size = store.block_size;
            let mut taken: Vec<_> = (0..1_000).map(|_| store.take()).collect();
            taken.sort();
            for pair in taken.windows(2) {
                assert!(pair[1].addr().get() - pair[0].addr().get() >= size);
                assert_eq!(pair[0].addr().get() % 64, 0);
            }
            let slabs = store.state.lock().slabs;
            assert_eq!(slabs, 1_000usize.div_ceil(SLAB_SIZE / size - 1));
            for block in taken.drain(..) {
                // SAFETY: written whole, so that an overlap would destroy a neighbor's link or header.
                unsafe {
                    ptr::write_bytes(block.as_ptr().cast::<u8>(), 0xff, size);
                    store.give(block);
                }
            }
            assert_eq!(store.state.lock().slabs, 1);
            let chain = store.take_chain();
            // SAFETY: just taken.
            unsafe { store.give_chain(chain) };
            assert_eq!(store.take_chain(), chain);
            // SAFETY: as above.
            unsafe { store.give_chain(chain) };
            // Single blocks come from it too, before there is another slab.
            let slabs = store.state.lock().slabs;
            let mut taken: Vec<_> = (0..slabs * (SLAB_SIZE / size - 1)).map(|_| store.take()).collect();
            assert_eq!(store.state.lock().slabs, slabs);
            let count = taken.len();
            taken.sort();
            taken.dedup();
            assert_eq!(taken.len(), count);
            for block in taken {
                // SAFETY: taken above, and given once.
                unsafe { store.give(block) };
            }
            assert_eq!(store.state.lock().slabs, 1);
        }
    }
}
