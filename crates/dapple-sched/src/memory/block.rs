//! Memory for queued callbacks: blocks of 64 and of 256 bytes from per-worker free lists.
//!
//! An allocator call per callback costs a third of the scheduler's speed, so a worker keeps the blocks that it frees
//! and hands them out again. Where one worker frees what another allocates, chains of [`CHAIN_LEN`] blocks travel
//! through a store (`slab.rs`), which gives memory back that nobody uses.
//!
//! What is kept is bounded in number, but any block keeps its slab, and that its region (`region.rs`): after a burst that
//! was freed in another order than it was made in, the few blocks that are kept could keep all of its memory. So a worker
//! that has given [`BURST_CHAINS`] chains away gives all that it and the stores keep back to the slabs when it next runs out
//! of work, before it sleeps. A worker that never does keeps what it has.
//!
//! The small size holds a node and 40 bytes of closure, the large one a request for two or three colors. What is larger
//! has an allocation of its own.

use std::cell::Cell;
use std::mem;
use std::ptr::{self, NonNull};

use crate::runtime::context;
use crate::runtime::switches;
use crate::worker::Worker;

/// A free block; the link is stored in the block itself.
pub(crate) struct Free {
    pub(crate) next: *mut Free,
    /// Of the first block of a chain: how many blocks the chain has.
    pub(crate) chain_len: usize,
}

/// The free blocks of one worker. Only its own thread touches them.
pub(crate) struct Blocks {
    lists: [FreeList; CLASSES.len()],
}

/// Those of one size: up to two chains, so that a worker which frees and takes around a chain's length needs the store for
/// neither (the magazines of Bonwick's slab allocator).
struct FreeList {
    /// Blocks are taken from here, and put here.
    head: Cell<*mut Free>,
    /// Its length: [`CHAIN_LEN`], and what a few callbacks add.
    len: Cell<usize>,
    /// A whole chain, or null.
    spare: Cell<*mut Free>,
    /// Chains given to the store since memory was last given back.
    spilled: Cell<usize>,
}

impl FreeList {
    const fn new() -> FreeList {
        FreeList {
            head: Cell::new(ptr::null_mut()),
            len: Cell::new(0),
            spare: Cell::new(ptr::null_mut()),
            spilled: Cell::new(0),
        }
    }

    /// A block of this list, if it has one.
    #[inline]
    fn take(&self) -> Option<NonNull<Free>> {
        let block = NonNull::new(self.head.get())?;
        // SAFETY: blocks on the list are free and owned by this worker's thread, which is the caller.
        self.head.set(unsafe { block.as_ref().next });
        self.len.set(self.len.get() - 1);
        Some(block)
    }

    #[inline]
    fn pop(&self, class: usize) -> NonNull<Free> {
        self.take().unwrap_or_else(|| self.refill(class))
    }

    /// Puts a block on the list, which may grow longer than it should: [`FreeList::trim`] is called soon.
    #[inline]
    fn keep(&self, block: NonNull<Free>) {
        // SAFETY: the caller gives up the block, which is large enough and aligned for a link.
        unsafe { (&raw mut (*block.as_ptr()).next).write(self.head.get()) };
        self.head.set(block.as_ptr());
        self.len.set(self.len.get() + 1);
    }

    #[inline]
    fn push(&self, class: usize, block: NonNull<Free>) {
        self.keep(block);
        self.trim(class);
    }

    /// Makes room where the list is a whole chain.
    #[inline]
    fn trim(&self, class: usize) {
        if self.len.get() >= CHAIN_LEN {
            self.spill(class);
        }
    }

    /// Goes on with a whole chain, the spare one or one from the store; returns the first block of it.
    #[cold]
    fn refill(&self, class: usize) -> NonNull<Free> {
        let spare = self.spare.replace(ptr::null_mut());
        self.head.set(if spare.is_null() { store::take_chain(class) } else { spare });
        // SAFETY: a chain is this worker's, and knows its length.
        self.len.set(unsafe { &*self.head.get() }.chain_len);
        self.take().expect("a chain has a head")
    }

    /// After a burst, gives some of what is kept here or in the store back to its slabs. False: there was no burst, or
    /// nothing is left.
    fn give_back_some(&self, class: usize) -> bool {
        if self.spilled.get() < BURST_CHAINS {
            return false;
        }
        if self.len.get() == 0 && self.spare.get().is_null() {
            if store::give_back_chain(class) {
                return true;
            }
            self.spilled.set(0);
            return false;
        }
        let some = if self.len.get() > 0 { &self.head } else { &self.spare };
        self.len.set(0);
        // SAFETY: free blocks of this class, which the list gives up.
        unsafe { store::give_all(class, some.replace(ptr::null_mut())) };
        true
    }

    /// Makes room: what is in the list becomes the spare chain, and what that was goes to the store.
    #[cold]
    fn spill(&self, class: usize) {
        let head = self.head.replace(ptr::null_mut());
        // SAFETY: the list has blocks, which are this worker's.
        unsafe { (*head).chain_len = self.len.replace(0) };
        let spare = self.spare.replace(head);
        if !spare.is_null() {
            self.spilled.set(self.spilled.get() + 1);
            // SAFETY: a whole chain of free blocks, which the list gives up.
            unsafe { store::give_chain(class, spare) };
        }
    }
}

impl Blocks {
    pub(crate) const fn new() -> Blocks {
        Blocks { lists: [const { FreeList::new() }; CLASSES.len()] }
    }

    /// After callbacks have run: gives to the store what is too much.
    #[inline]
    pub(crate) fn trim(&self) {
        self.lists[SMALL].trim(SMALL);
    }

    /// For a worker without work: after a burst, gives memory back, a chain of blocks at a time. True: there may be more.
    pub(crate) fn give_back_some(&self) -> bool {
        (0..CLASSES.len()).any(|class| self.lists[class].give_back_some(class))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (class, list) in self.lists.iter().enumerate() {
            // SAFETY: the worker's own free blocks, which it gives up.
            unsafe {
                store::give_all(class, list.head.get());
                store::give_all(class, list.spare.get());
            }
        }
    }
}

/// The size of block into which a `T` fits; `None` if it fits into none.
const fn class_of<T>() -> Option<usize> {
    let mut class = 0;
    while class < CLASSES.len() {
        if mem::size_of::<T>() <= CLASSES[class] && mem::align_of::<T>() <= 64 {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// Moves `value` into a block, or into an allocation of its own where it is larger than one.
#[inline]
pub(crate) fn alloc<T>(value: T) -> NonNull<T> {
    let block = alloc_uninit::<T>().cast();
    // SAFETY: memory for a `T`, owned by us.
    unsafe { block.write(value) };
    block
}

/// A block for a `T`, or an allocation of its own where that is larger than one.
#[inline]
pub(crate) fn alloc_uninit<T>() -> NonNull<mem::MaybeUninit<T>> {
    match const { class_of::<T>() } {
        Some(class) if switches::free_lists() => {
            let recycled = context::with_worker(|worker| worker.blocks.lists[class].pop(class));
            recycled.unwrap_or_else(|| store::take(class)).cast()
        }
        // SAFETY: `Box::into_raw` is never null.
        _ => unsafe { NonNull::new_unchecked(Box::into_raw(Box::<T>::new_uninit())) },
    }
}

/// As [`alloc_uninit`], where that needs nothing but a block from this worker's list.
#[inline]
pub(crate) fn try_alloc_uninit<T>() -> Option<NonNull<mem::MaybeUninit<T>>> {
    match const { class_of::<T>() } {
        Some(class) if switches::free_lists() => {
            context::with_worker(|worker| worker.blocks.lists[class].take()).flatten().map(NonNull::cast)
        }
        _ => None,
    }
}

/// Frees what [`alloc`] returned, without dropping the contents.
///
/// # Safety
/// `value` must come from [`alloc`] for the same `T`, and its contents must have been moved out or dropped.
#[inline]
pub(crate) unsafe fn free<T>(value: NonNull<T>) {
    let Some(class) = (const { class_of::<T>() }) else {
        // SAFETY: it was a `Box<T>`; `MaybeUninit` keeps the contents from being dropped again.
        drop(unsafe { Box::from_raw(value.cast::<mem::MaybeUninit<T>>().as_ptr()) });
        return;
    };
    if !switches::free_lists() {
        // SAFETY: allocated as a box in `alloc`; `MaybeUninit` keeps the contents from being dropped again.
        return drop(unsafe { Box::from_raw(value.cast::<mem::MaybeUninit<T>>().as_ptr()) });
    }
    let kept = context::with_worker(|worker| worker.blocks.lists[class].push(class, value.cast()));
    if kept.is_none() {
        // SAFETY: a block of this class (`alloc`), given up by the caller.
        unsafe { store::give(class, value.cast()) };
    }
}

/// As [`free`], for the worker of this thread, which calls [`Blocks::trim`] after a few of them.
///
/// # Safety
/// As there.
#[inline]
pub(crate) unsafe fn free_at<T>(worker: &Worker, value: NonNull<T>) {
    if const { matches!(class_of::<T>(), Some(SMALL)) } && switches::free_lists() {
        worker.blocks.lists[SMALL].keep(value.cast());
    } else {
        // SAFETY: promised by the caller.
        unsafe { free(value) };
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod store {
    //! The stores of the process.

    use std::ptr::NonNull;

    use super::{CLASSES, Free};
    use crate::memory::region::Regions;
    use crate::memory::slab::Store;

    static REGIONS: Regions = Regions::new();

    static STORES: [Store; CLASSES.len()] = [Store::new(CLASSES[0], &REGIONS), Store::new(CLASSES[1], &REGIONS)];

    pub(super) fn take(class: usize) -> NonNull<Free> {
        STORES[class].take()
    }

    pub(super) fn take_chain(class: usize) -> *mut Free {
        STORES[class].take_chain()
    }

    pub(super) fn give_back_chain(class: usize) -> bool {
        STORES[class].give_back_chain()
    }

    #[cfg(test)]
    pub(super) fn bytes() -> usize {
        REGIONS.bytes()
    }

    /// # Safety
    /// As [`Store::give`].
    pub(super) unsafe fn give(class: usize, block: NonNull<Free>) {
        // SAFETY: promised by the caller.
        unsafe { STORES[class].give(block) };
    }

    /// # Safety
    /// As [`Store::give_chain`].
    pub(super) unsafe fn give_chain(class: usize, head: *mut Free) {
        // SAFETY: promised by the caller.
        unsafe { STORES[class].give_chain(head) };
    }

    /// # Safety
    /// As [`Store::give_all`].
    pub(super) unsafe fn give_all(class: usize, head: *mut Free) {
        // SAFETY: promised by the caller.
        unsafe { STORES[class].give_all(head) };
    }
}

#[cfg(any(dapple_loom, dapple_shuttle))]
mod store {
    //! Models have no static atomics: each block is an allocation of its own.

    use std::alloc::{Layout, handle_alloc_error};
    use std::ptr::{self, NonNull};

    use super::{CHAIN_LEN, CLASSES, Free};

    fn layout(class: usize) -> Layout {
        Layout::from_size_align(CLASSES[class], 64).expect("a valid layout")
    }

    pub(super) fn take(class: usize) -> NonNull<Free> {
        // SAFETY: a class has a size.
        let fresh = unsafe { std::alloc::alloc(layout(class)) };
        NonNull::new(fresh.cast()).unwrap_or_else(|| handle_alloc_error(layout(class)))
    }

    pub(super) fn take_chain(class: usize) -> *mut Free {
        let mut head = ptr::null_mut();
        for _ in 0..CHAIN_LEN {
            let block = take(class);
            // SAFETY: just made.
            unsafe { block.write(Free { next: head, chain_len: CHAIN_LEN }) };
            head = block.as_ptr();
        }
        head
    }

    /// Nothing is kept.
    pub(super) fn give_back_chain(_class: usize) -> bool {
        false
    }

    /// # Safety
    /// The block came from [`take`], and is the caller's to give.
    pub(super) unsafe fn give(class: usize, block: NonNull<Free>) {
        // SAFETY: promised by the caller.
        unsafe { std::alloc::dealloc(block.as_ptr().cast(), layout(class)) };
    }

    /// # Safety
    /// As [`give`], for each of a list.
    pub(super) unsafe fn give_chain(class: usize, head: *mut Free) {
        // SAFETY: promised by the caller.
        unsafe { give_all(class, head) };
    }

    /// # Safety
    /// As [`give`], for each of a list.
    pub(super) unsafe fn give_all(class: usize, mut head: *mut Free) {
        while let Some(block) = NonNull::new(head) {
            // SAFETY: promised by the caller.
            unsafe {
                head = block.as_ref().next;
                give(class, block);
            }
        }
    }
}

/// The sizes of block, each a multiple of a cache line, on which they begin: blocks that two workers use may be
/// neighbors, and both write to theirs for every callback.
const CLASSES: [usize; 2] = [64, 256];

/// The class of most callbacks.
const SMALL: usize = 0;

/// Blocks that move between workers at a time, at least.
pub(super) const CHAIN_LEN: usize = 64;

/// A worker that has given away so many chains, as many as a store keeps, has seen a burst.
const BURST_CHAINS: usize = 64;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::{Duration, Instant};

    use super::store;
    use crate::{Color, Runtime};

    /// What the stores have is asked by one test at a time.
    static STORES: Mutex<()> = Mutex::new(());

    /// Callbacks of many colors lie in memory as they were posted, and are freed color by color: the last ones that a
    /// worker keeps are from all over the place.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let _alone = STORES.lock();
        let runtime = Runtime::builder().workers(1).build().expect("a runtime");
        let _entered = runtime.enter();
        let (open, gate) = mpsc::channel::<()>();
        Color::new().post(move || {
            let _ = gate.recv();
        });
        let colors: Vec<_> = (0..512).map(|_| Color::new()).collect();
        let before = store::bytes();
        for _ in 0..100 {
            colors.iter().for_each(|color| color.post(|| ()));
        }
        assert!(store::bytes() >= before + 3_000_000, "51,200 blocks of 64 bytes");
        drop(open);
        // Not a limit on how long it takes, but on how long this test hangs if it fails.
        let begin = Instant::now();
        while store::bytes() > before + 1_000_000 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(store::bytes() <= before + 1_000_000, "{} bytes are kept", store::bytes());
    }

    /// Turns that end early also give to the store what their callbacks leave.
    #[test]
    fn callbacks_from_outside_leave_no_blocks_behind_however_their_turns_end() {
        let _alone = STORES.lock();
        let runtime = Runtime::builder().workers(1).panic_handler(|_| ()).build().expect("a runtime");
        let _entered = runtime.enter();
        let color = Color::new();
        let before = store::bytes();
        for round in 0..200 {
            for _ in 0..100 {
                color.post(move || {
                    // Long enough for each turn to be timed.
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_micros(4) {}
                    crate::count_time(Duration::from_millis(50));
                    if round % 2 == 0 {
                        std::panic::resume_unwind(Box::new("as the test says"));
                    }
                });
            }
            let (tx, rx) = mpsc::channel();
            color.post(move || {
                crate::count_time(Duration::from_millis(50));
                tx.send(()).expect("the test waits");
            });
            rx.recv().expect("the runtime goes on");
        }
        // 20,000 blocks of 64 bytes went through.
        assert!(store::bytes() <= before + 500_000, "{} bytes more are kept", store::bytes() - before);
    }
}
