//! Memory for queued callbacks: 64-byte blocks from per-worker free lists.
//!
//! An allocator call per callback costs a third of the scheduler's speed, so a worker keeps the blocks that it frees
//! and hands them out again. Where one worker frees what another allocates, chains of [`CHAIN_LEN`] blocks travel
//! through a depot with a bound; what does not fit there goes back to the allocator, so memory follows the load down.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::mem;
use std::ptr::{self, NonNull};

use crate::context;
use crate::lock::Lock;

/// A free block; the link is stored in the block itself.
struct Free {
    next: *mut Free,
}

/// The free blocks of one worker. Only its own thread touches it.
pub(crate) struct Blocks {
    head: Cell<*mut Free>,
    len: Cell<usize>,
}

/// Whole chains of free blocks, shared by the workers of a runtime.
pub(crate) struct Depot {
    chains: Lock<Vec<ChainPtr>>,
}

/// The head of a chain of exactly [`CHAIN_LEN`] free blocks.
struct ChainPtr(*mut Free);

// SAFETY: a chain is owned by whoever holds its head; it is moved as a whole, under the depot's lock.
unsafe impl Send for ChainPtr {}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { head: Cell::new(ptr::null_mut()), len: Cell::new(0) }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<Free>> {
        let block = NonNull::new(self.head.get())?;
        // SAFETY: blocks on the list are free and owned by this worker's thread, which is the caller.
        self.head.set(unsafe { block.as_ref().next });
        self.len.set(self.len.get() - 1);
        Some(block)
    }

    #[inline]
    fn push(&self, block: NonNull<Free>) {
        // SAFETY: the caller gives up the block, which is large enough and aligned for a link.
        unsafe { block.write(Free { next: self.head.get() }) };
        self.head.set(block.as_ptr());
        self.len.set(self.len.get() + 1);
    }

    /// Refills from the depot; false where it is empty.
    #[cold]
    fn refill(&self, depot: &Depot) -> bool {
        let Some(chain) = depot.chains.lock().pop() else { return false };
        self.head.set(chain.0);
        self.len.set(CHAIN_LEN);
        true
    }

    /// Gives one chain away, to the depot if it has room and to the allocator otherwise.
    #[cold]
    fn spill(&self, depot: &Depot) {
        let head = self.head.get();
        let mut last = head;
        for _ in 1..CHAIN_LEN {
            // SAFETY: the list holds more than CHAIN_LEN blocks (see the caller), all ours.
            last = unsafe { (*last).next };
        }
        // SAFETY: as above; `last` is the CHAIN_LEN-th block.
        self.head.set(unsafe { mem::replace(&mut (*last).next, ptr::null_mut()) });
        self.len.set(self.len.get() - CHAIN_LEN);
        let mut chains = depot.chains.lock();
        if chains.len() < DEPOT_CHAINS_MAX {
            chains.push(ChainPtr(head));
        } else {
            drop(chains);
            free_list(head);
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        free_list(self.head.get());
    }
}

impl Depot {
    pub(crate) fn new() -> Depot {
        Depot { chains: Lock::new(Vec::with_capacity(DEPOT_CHAINS_MAX)) }
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        for chain in self.chains.lock().drain(..) {
            free_list(chain.0);
        }
    }
}

/// Returns a list of free blocks to the allocator.
fn free_list(mut head: *mut Free) {
    while let Some(block) = NonNull::new(head) {
        // SAFETY: a free block on a list that the caller gives up; allocated with `BLOCK`.
        unsafe {
            head = block.as_ref().next;
            std::alloc::dealloc(block.as_ptr().cast(), BLOCK);
        }
    }
}

/// Whether a `T` fits into a block.
const fn fits<T>() -> bool {
    mem::size_of::<T>() <= BLOCK.size() && mem::align_of::<T>() <= BLOCK.align()
}

/// Moves `value` into a block, or into an allocation of its own where it is larger than one.
#[inline]
pub(crate) fn alloc<T>(value: T) -> NonNull<T> {
    if !fits::<T>() {
        // SAFETY: `Box::into_raw` is never null.
        return unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(value))) };
    }
    let recycled = context::with_worker(|worker| {
        let blocks = &worker.blocks;
        blocks.pop().or_else(|| if blocks.refill(&worker.shared.depot) { blocks.pop() } else { None })
    });
    let block: NonNull<T> = match recycled.flatten() {
        Some(block) => block.cast(),
        None => {
            // SAFETY: `BLOCK` has a non-zero size.
            let fresh = unsafe { std::alloc::alloc(BLOCK) };
            NonNull::new(fresh.cast()).unwrap_or_else(|| handle_alloc_error(BLOCK))
        }
    };
    // SAFETY: a block of at least the size and alignment of `T` (`fits`), owned by us.
    unsafe { block.write(value) };
    block
}

/// Frees what [`alloc`] returned, without dropping the contents.
///
/// # Safety
/// `value` must come from [`alloc`] for the same `T`, and its contents must have been moved out or dropped.
#[inline]
pub(crate) unsafe fn free<T>(value: NonNull<T>) {
    if !fits::<T>() {
        // SAFETY: it was a `Box<T>`; `MaybeUninit` keeps the contents from being dropped again.
        drop(unsafe { Box::from_raw(value.cast::<mem::MaybeUninit<T>>().as_ptr()) });
        return;
    }
    let kept = context::with_worker(|worker| {
        worker.blocks.push(value.cast());
        if worker.blocks.len.get() > LOCAL_MAX {
            worker.blocks.spill(&worker.shared.depot);
        }
    });
    if kept.is_none() {
        // SAFETY: allocated with `BLOCK` in `alloc`, and given up by the caller.
        unsafe { std::alloc::dealloc(value.as_ptr().cast(), BLOCK) };
    }
}

/// Sixty-four bytes: a node and 48 bytes of closure. A cache line of its own: blocks that two workers use may be neighbors,
/// and both write to theirs for every callback.
const BLOCK: Layout = match Layout::from_size_align(64, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("64 bytes aligned to 64 is a valid layout"),
};

/// Blocks that move between workers at a time.
const CHAIN_LEN: usize = 64;

/// Free blocks that a worker keeps before it gives a chain away.
const LOCAL_MAX: usize = 4 * CHAIN_LEN;

/// Chains that a runtime keeps: 4,096 blocks, 256 KiB.
const DEPOT_CHAINS_MAX: usize = 64;
