//! Slabs of blocks of one size, and what is free of them.
//!
//! A slab begins at a multiple of its size with what never changes about it, [`About`], which is found by the address of a
//! block. The rest about it stands in its [`Class`], under that one's lock.
//!
//! | | in `partial` of its class | next |
//! |---|---|---|
//! | some blocks free | yes | the last one taken: out of the list; the last one given back: freed, or kept as the only one |
//! | none free | no | one given back: into the list |

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{cmp, mem};

use super::blocks::{Owner, STRETCH, Wanted, size_of_class};

/// A block that is handed out and has one owner, who keeps its slab by it, and the runtime that this belongs to.
pub(crate) struct Block<R>(NonNull<u8>, PhantomData<*const R>);

/// What never changes about a slab.
#[repr(C, align(64))]
pub(super) struct About<R> {
    owner: *const R,
    pub(super) class: usize,
    /// The first of the numbers that the colors of its tasks have.
    first_id: u64,
    /// The allocation that it stands in.
    area: NonNull<u8>,
    /// The slab's place in its class: read and written under the class's lock.
    at: AtomicUsize,
}

/// Blocks that are free, or kept by a worker.
pub(super) struct Chain<R> {
    head: Cell<*mut Link>,
    of: PhantomData<*const R>,
}

/// The first word of such a block.
struct Link {
    next: *mut Link,
}

/// Slabs of one size of block.
pub(super) struct Class<R> {
    pub(super) slabs: Vec<Slab<R>>,
    /// Where those stand that have free blocks.
    partial: Vec<usize>,
}

pub(super) struct Slab<R> {
    about: NonNull<About<R>>,
    free: Chain<R>,
    /// Blocks that were handed out at least once.
    fresh: usize,
    /// Blocks in use, those that workers keep among them.
    used: usize,
    blocks: usize,
    /// A count, for as long as a block is in use.
    owner: Option<Arc<R>>,
}

// SAFETY: slabs are owned by their class and touched under its lock; what is in use of them is the users'. An owner may be
// shared between threads, as the trait asks.
unsafe impl<R> Send for Class<R> {}

/// Where a walk through the blocks of a class is.
pub(super) struct Place {
    /// So many slabs are left, the one that it is in among them.
    slabs: usize,
    /// The address of that one, as slabs change places,
    within: usize,
    /// ... and the first block of it that was not visited.
    from: usize,
}

impl<R> Block<R> {
    /// # Safety
    /// From [`Block::into_raw`], and the caller's to give.
    #[inline]
    pub(super) unsafe fn from_raw(block: NonNull<u8>) -> Block<R> {
        Block(block, PhantomData)
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<u8> {
        self.0
    }

    pub(super) fn pointer(&self) -> NonNull<u8> {
        self.0
    }

    #[inline]
    pub(super) fn about(&self) -> &About<R> {
        // SAFETY: in use for as long as this is.
        unsafe { About::of(self.0) }
    }
}

impl<R> About<R> {
    /// # Safety
    /// The block is in use for `'a`.
    #[inline]
    pub(super) unsafe fn of<'a>(block: NonNull<u8>) -> &'a About<R> {
        let head = block.cast::<About<R>>().map_addr(|addr| {
            // The header is in front of the first block, so the address is not null.
            NonZero::new(addr.get() & !(SLAB_SIZE - 1)).expect("a slab does not begin at address 0")
        });
        // SAFETY: promised by the caller; a slab is aligned to its size, and begins with this.
        unsafe { head.as_ref() }
    }

    /// The owner, which the block that this was asked of keeps.
    #[inline]
    pub(super) fn owner(&self) -> &R {
        // SAFETY: while a block is in use, its slab has a count.
        unsafe { &*self.owner }
    }

    pub(super) fn is_of(&self, owner: NonNull<R>, class: usize) -> bool {
        self.owner == owner.as_ptr() && self.class == class
    }

    pub(super) fn id_at(&self, address: usize) -> u64 {
        let offset = address & (SLAB_SIZE - 1);
        self.first_id + (offset.saturating_sub(HEADER) / size_of_class(self.class)) as u64
    }
}

impl<R> Chain<R> {
    pub(super) fn new() -> Chain<R> {
        Chain { head: Cell::new(ptr::null_mut()), of: PhantomData }
    }

    #[inline]
    pub(super) fn push(&self, block: Block<R>) {
        let link = block.0.cast::<Link>();
        // SAFETY: the block is ours, and has room for a link.
        unsafe { link.write(Link { next: self.head.get() }) };
        self.head.set(link.as_ptr());
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Block<R>> {
        let link = NonNull::new(self.head.get())?;
        // SAFETY: what is in the chain is its own, and was linked.
        self.head.set(unsafe { link.as_ref() }.next);
        Some(Block(link.cast(), PhantomData))
    }

    /// All of it.
    pub(super) fn take(&self) -> Chain<R> {
        Chain { head: Cell::new(self.head.take()), of: PhantomData }
    }

    /// Puts blocks into an empty chain.
    pub(super) fn fill(&self, blocks: Chain<R>) {
        debug_assert!(self.head.get().is_null());
        self.head.swap(&blocks.head);
    }

    /// Cuts off the first blocks, up to `max` of them. Returns how many they are.
    fn cut(&self, max: usize) -> (Chain<R>, usize) {
        let cut = self.take();
        let Some(mut last) = NonNull::new(cut.head.get()) else { return (cut, 0) };
        let mut len = 1;
        // SAFETY: as in `pop`.
        unsafe {
            while len < max
                && let Some(next) = NonNull::new(last.as_ref().next)
            {
                (last, len) = (next, len + 1);
            }
            self.head.set(mem::replace(&mut last.as_mut().next, ptr::null_mut()));
        }
        (cut, len)
    }
}

impl<R: Owner> Class<R> {
    pub(super) fn new() -> Class<R> {
        Class { slabs: Vec::new(), partial: Vec::new() }
    }

    pub(super) fn add(&mut self, slab: Slab<R>) {
        let at = self.slabs.len();
        // Relaxed, here and below: under the lock.
        slab.about().at.store(at, Relaxed);
        self.slabs.push(slab);
        self.partial.push(at);
    }

    /// Free blocks; none where no slab has any.
    pub(super) fn take(&mut self, owner: &R, wanted: Wanted) -> Chain<R> {
        let Some(&at) = self.partial.last() else { return Chain::new() };
        let slab = &mut self.slabs[at];
        if slab.used == 0 {
            slab.owner = Some(owner.counted());
        }
        let (chain, len) = match slab.free.cut(wanted.freed()) {
            (_, 0) => slab.carve(wanted.fresh(size_of_class(slab.about().class))),
            freed => freed,
        };
        slab.used += len;
        if slab.is_full() {
            self.partial.pop();
        }
        chain
    }

    /// Takes a block back. Returns its slab if that is unused from here on.
    #[inline]
    pub(super) fn give(&mut self, block: Block<R>) -> Option<usize> {
        let at = block.about().at.load(Relaxed);
        let slab = &mut self.slabs[at];
        if slab.is_full() {
            self.partial.push(at);
        }
        slab.free.push(block);
        slab.used -= 1;
        (slab.used == 0).then_some(at)
    }

    /// Returns an unused slab, if it is not the only one, and its count on the owner; both to be dropped without the lock.
    #[cold]
    pub(super) fn let_go(&mut self, at: usize) -> (Option<Slab<R>>, Option<Arc<R>>) {
        let owner = self.slabs[at].owner.take();
        ((self.slabs.len() > 1).then(|| self.remove(at)), owner)
    }

    /// See `look` for why the last slab takes its place.
    fn remove(&mut self, at: usize) -> Slab<R> {
        let removed = self.slabs.swap_remove(at);
        let moved = self.slabs.len();
        self.partial.retain(|slab| *slab != at);
        self.partial.iter_mut().filter(|slab| **slab == moved).for_each(|slab| *slab = at);
        if let Some(slab) = self.slabs.get(at) {
            slab.about().at.store(at, Relaxed);
        }
        removed
    }

    /// What is found in the next blocks, not to be dropped under the lock; false at the end. From the last slab to the first:
    /// where one is freed meanwhile the last takes its place, so that none is missed.
    pub(super) fn look<T>(
        &self,
        place: &mut Place,
        found: &mut Vec<T>,
        look: &mut impl FnMut(NonNull<u8>) -> Option<T>,
    ) -> bool {
        place.slabs = place.slabs.min(self.slabs.len());
        while let Some(slab) = place.slabs.checked_sub(1).map(|at| &self.slabs[at]) {
            let address = slab.about.addr().get();
            if place.within != address {
                // The next one, or another one that has taken its place.
                (place.within, place.from) = (address, 0);
            }
            while place.from < slab.fresh {
                let block = slab.block_at(place.from);
                place.from += 1;
                found.extend(look(block));
                if found.len() == STRETCH {
                    return true;
                }
            }
            place.slabs -= 1;
        }
        false
    }

    pub(super) fn id_at(&self, address: usize) -> Option<u64> {
        let slab = self.slabs.iter().find(|slab| slab.about.addr().get() == address & !(SLAB_SIZE - 1))?;
        Some(slab.about().id_at(address))
    }
}

impl Place {
    pub(super) fn first() -> Place {
        Place { slabs: usize::MAX, within: 0, from: 0 }
    }
}

impl<R: Owner> Slab<R> {
    pub(super) fn new(owner: &R, class: usize) -> Slab<R> {
        let blocks = (SLAB_SIZE - HEADER) / size_of_class(class);
        let first_id = owner.fresh_ids(blocks as u64);
        // SAFETY: an area has a size.
        let area = NonNull::new(unsafe { alloc(AREA) }).unwrap_or_else(|| handle_alloc_error(AREA));
        // SAFETY: twice the size of a slab has room for one that begins at a multiple of its size.
        let about = unsafe { area.add(area.addr().get().wrapping_neg() & (SLAB_SIZE - 1)) }.cast();
        // SAFETY: ours, aligned, and large enough for its header.
        unsafe { about.write(About { owner, class, first_id, area, at: AtomicUsize::new(0) }) };
        Slab { about, free: Chain::new(), fresh: 0, used: 0, blocks, owner: None }
    }

    fn is_full(&self) -> bool {
        self.used == self.blocks
    }

    /// Up to so many blocks that were never handed out: in the order of their addresses, so that what goes through tasks in the
    /// order of their making goes through memory.
    fn carve(&mut self, wanted: usize) -> (Chain<R>, usize) {
        let (from, chain) = (self.fresh, Chain::new());
        self.fresh = cmp::min(from + wanted, self.blocks);
        for at in (from..self.fresh).rev() {
            let block = Block(self.block_at(at), PhantomData);
            R::prepare(&block);
            chain.push(block);
        }
        (chain, self.fresh - from)
    }
}

impl<R> Slab<R> {
    fn about(&self) -> &About<R> {
        // SAFETY: written by `new`, and never moved.
        unsafe { self.about.as_ref() }
    }

    fn block_at(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at < self.blocks);
        // SAFETY: within the slab.
        unsafe { self.about.cast::<u8>().add(HEADER + at * size_of_class(self.about().class)) }
    }
}

impl<R> Drop for Slab<R> {
    fn drop(&mut self) {
        // SAFETY: made by `new`. A class gives up a slab only where nothing of it is in use: one of which something is keeps the
        // owner, and this its classes.
        unsafe { dealloc(self.about().area.as_ptr(), AREA) };
    }
}

/// In a model a slab has two blocks.
pub(super) const MODEL: bool = cfg!(any(dapple_loom, dapple_shuttle));

/// Bytes in front of the first block; a multiple of every alignment.
const HEADER: usize = size_of::<About<()>>();

/// Large, as the allocator loses a page for each.
const SLAB_SIZE: usize = if MODEL { 1 << 10 } else { 1 << 20 };

/// What the allocator is asked for, so that a slab can begin at a multiple of its size. What is in front of it and behind is
/// never touched. Asked for the alignment itself, glibc does not find what it was given back, once it has stopped mapping
/// such sizes one by one: 250,000 tasks that came and went grew a process by 10 MB each time.
const AREA: Layout = match Layout::from_size_align(2 * SLAB_SIZE, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("16 is an alignment"),
};

const _: () = assert!(HEADER.is_multiple_of(64));
