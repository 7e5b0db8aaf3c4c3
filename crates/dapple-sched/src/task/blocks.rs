//! Blocks for tasks, from slabs of one size of block each.
//!
//! Blocks come in steps of 8 bytes, and a slab of a megabyte, which begins at a multiple of its size, has one header for all
//! of them: their owner, a runtime, and the number of a block are found by its address. Pages of a slab become resident when
//! they are first used.
//!
//! # A slab
//!
//! | | in the list of its class | next |
//! |---|---|---|
//! | some blocks free | yes | the last one taken: out of the list; the last one given back: freed, or kept as the only one |
//! | none free | no | one given back: into the list |
//!
//! All under the class's lock. A slab of which a block is in use keeps the runtime alive. Workers keep a few free blocks of
//! each class; these count as used.
//!
//! Generic over the owner, so that loom's models run this code with blocks that they can look into.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::mem;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::Header;
use crate::sync::lock::Lock;

/// What blocks belong to, in an `Arc`: slabs with a block in use count on it.
pub(crate) trait Owner: Send + Sync + Sized {
    fn blocks(&self) -> &Blocks<Self>;

    /// The first of so many numbers that nothing else of it has.
    fn fresh_ids(&self, count: u64) -> u64;

    /// Makes a block that was never handed out one that [`Blocks::walk`] may visit.
    ///
    /// # Safety
    /// The block is the caller's. The first word is not the owner's to use while the block is free.
    unsafe fn prepare(block: NonNull<u8>);
}

/// All blocks of one owner.
pub(crate) struct Blocks<R> {
    classes: Box<[Lock<Class<R>>]>,
}

/// Slabs of one size of block.
struct Class<R> {
    /// Slabs with free blocks.
    partial: *mut Slab<R>,
    /// All of them.
    slabs: Vec<NonNull<Slab<R>>>,
}

// SAFETY: slabs are owned by their class and touched under its lock; what is in use of them is the users'. An owner may be
// shared between threads, as the trait asks.
unsafe impl<R> Send for Class<R> {}

/// The head of a slab.
#[repr(C, align(64))]
struct Slab<R> {
    /// The owner. Never changes, and may be read without the lock as long as a block is in use.
    owner: *const R,
    prev: *mut Slab<R>,
    next: *mut Slab<R>,
    free: *mut Free,
    block_size: u32,
    /// Blocks that were handed out at least once.
    fresh: u32,
    /// Blocks in use, those that workers keep among them.
    used: u32,
    blocks: u32,
    /// The first of the numbers that the colors of its tasks have.
    first_id: u64,
    /// The allocation that it stands in.
    area: NonNull<u8>,
}

/// Where a walk through the blocks of a class is.
struct Place<R> {
    /// So many slabs are left, the one that it is in among them.
    slabs: usize,
    /// That one, as slabs change places,
    within: *const Slab<R>,
    /// ... and the first block of it that was not visited.
    from: u32,
}

/// A free block.
struct Free {
    next: *mut Free,
}

/// The free blocks of one worker. Only its own thread touches them.
pub(crate) struct FreeTasks {
    lists: Box<[FreeList]>,
    /// Blocks given back to the slabs since the last burst was cleaned up.
    spilled: Cell<usize>,
}

struct FreeList {
    /// What this worker has freed.
    head: Cell<*mut Free>,
    len: Cell<usize>,
    /// What it got from the slabs: a stretch of memory of its own where the blocks are fresh, as two workers would write to
    /// the same lines all the time whose tasks lie between each other's, or fetch ahead what the other one is writing.
    stock: Cell<*mut Free>,
}

/// The class for blocks of so many bytes and that alignment; `None` where they need an allocation of their own.
pub(crate) const fn class_of(size: usize, align: usize) -> Option<usize> {
    let step = if align > STEP { BLOCK_ALIGN_MAX } else { STEP };
    let size = size.next_multiple_of(step);
    if size > BLOCK_MAX || align > BLOCK_ALIGN_MAX { None } else { Some((size - BLOCK_MIN) / STEP) }
}

const fn size_of_class(class: usize) -> usize {
    BLOCK_MIN + class * STEP
}

impl<R: Owner> Blocks<R> {
    pub(crate) fn new() -> Blocks<R> {
        let empty = || Lock::new(Class { partial: ptr::null_mut(), slabs: Vec::new() });
        Blocks { classes: (0..CLASSES).map(|_| empty()).collect() }
    }

    /// Visits what `look` finds in the blocks that were handed out once, some of which are free; those that are handed out
    /// meanwhile perhaps. `look` runs under a lock, and keeps its block from being given back as long as what it returns is
    /// there; `visit` does not.
    pub(super) fn walk<T: Clone>(&self, mut look: impl FnMut(NonNull<u8>) -> Option<T>, mut visit: impl FnMut(T)) {
        for class in &self.classes {
            let mut place = Place { slabs: usize::MAX, within: ptr::null(), from: 0 };
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
        self.classes.iter().find_map(|class| {
            let class = class.lock();
            let slab = class.slabs.iter().find(|slab| slab.addr().get() == address & !(SLAB_SIZE - 1))?;
            // SAFETY: the class's lock is held.
            Some(unsafe { slab.as_ref() }.id_at(address))
        })
    }

    /// One block.
    pub(crate) fn take_one(&self, owner: *const R, class: usize) -> NonNull<u8> {
        // A chain of one is never null: where there is no slab, one is made.
        NonNull::new(self.take(owner, class, Wanted::One)).expect("one block was asked for").cast()
    }

    /// Gives one block back.
    ///
    /// # Safety
    /// The block is free, of this class and owner, and the caller's to give.
    pub(super) unsafe fn give_one(owner: *const R, class: usize, block: NonNull<u8>) {
        // SAFETY: promised by the caller; a block has room for a link.
        unsafe {
            block.cast::<Free>().write(Free { next: ptr::null_mut() });
            Blocks::give(owner, class, block.as_ptr().cast());
        }
    }

    fn take(&self, owner: *const R, class: usize, wanted: Wanted) -> *mut Free {
        loop {
            let taken = self.classes[class].lock().take(wanted);
            if !taken.is_null() {
                return taken;
            }
            let slab = new_slab(owner, size_of_class(class));
            let mut state = self.classes[class].lock();
            state.slabs.push(slab);
            // SAFETY: new, in no list, and with free blocks.
            unsafe { state.link(slab) };
        }
    }

    /// # Safety
    /// The blocks are free, of this class and owner, and the caller's to give.
    unsafe fn give(owner: *const R, class: usize, mut rest: *mut Free) {
        while let Some(block) = NonNull::new(rest) {
            // SAFETY: promised by the caller; each block that is left keeps the owner.
            let (unused, counted) = unsafe {
                rest = block.as_ref().next;
                (&(*owner).blocks().classes)[class].lock().give(block)
            };
            if let Some(slab) = unused {
                // SAFETY: made by `new_slab`; nothing of it is in use, and it is in no list.
                unsafe { std::alloc::dealloc(slab.as_ref().area.as_ptr(), AREA) };
            }
            if !counted.is_null() {
                // SAFETY: counted when the first block of the slab was taken. Perhaps the end of the owner, so that nothing
                // here borrows it: then there is no block left, as each would keep it.
                drop(unsafe { Arc::from_raw(counted) });
            }
        }
    }
}

impl<R> Drop for Blocks<R> {
    fn drop(&mut self) {
        for class in &self.classes {
            for slab in class.lock().slabs.drain(..) {
                // SAFETY: made by `new_slab`. A slab of which something is in use keeps the owner.
                unsafe { std::alloc::dealloc(slab.as_ref().area.as_ptr(), AREA) };
            }
        }
    }
}

impl<R: Owner> Class<R> {
    /// Free blocks, in a chain; null where there are none.
    fn take(&mut self, wanted: Wanted) -> *mut Free {
        let Some(mut slab) = NonNull::new(self.partial) else { return ptr::null_mut() };
        let mut chain: *mut Free = ptr::null_mut();
        // SAFETY: slabs in the list are ours, and have free blocks.
        unsafe {
            let header = slab.as_mut();
            if header.used == 0 {
                // For as long as something of the slab is in use. The caller has the owner.
                Arc::increment_strong_count(header.owner);
            }
            // The fresh ones in the order of their addresses, so that whoever goes through tasks in the order of their
            // making goes through memory.
            let mut tail: *mut Free = ptr::null_mut();
            let wanted = if header.free.is_null() { wanted.fresh(header.block_size) } else { wanted.freed() };
            let fresh = header.free.is_null();
            for _ in 0..wanted {
                let block = match NonNull::new(header.free) {
                    Some(block) => {
                        header.free = block.as_ref().next;
                        block
                    }
                    None if fresh && header.fresh < header.blocks => header.carve(slab),
                    None => break,
                };
                header.used += 1;
                block.write(Free { next: ptr::null_mut() });
                match NonNull::new(tail) {
                    Some(mut tail) => tail.as_mut().next = block.as_ptr(),
                    None => chain = block.as_ptr(),
                }
                tail = block.as_ptr();
            }
            if header.free.is_null() && header.fresh == header.blocks {
                self.unlink(slab);
            }
        }
        chain
    }

    /// Takes a block back. Returns the slab if it is unused and the caller's to free, and the owner if the slab's count on it
    /// is the caller's.
    ///
    /// # Safety
    /// As [`Blocks::give`].
    unsafe fn give(&mut self, block: NonNull<Free>) -> (Option<NonNull<Slab<R>>>, *const R) {
        // SAFETY: promised by the caller; slabs are aligned to their size.
        unsafe {
            let mut slab = slab_of::<R>(block.cast());
            let header = slab.as_mut();
            let was_full = header.free.is_null() && header.fresh == header.blocks;
            block.write(Free { next: header.free });
            header.free = block.as_ptr();
            header.used -= 1;
            if was_full {
                self.link(slab);
            }
            if header.used > 0 {
                return (None, ptr::null());
            }
            let owner = header.owner;
            if self.slabs.len() == 1 {
                return (None, owner);
            }
            self.unlink(slab);
            // See `look` for why this order is right.
            let at = self.slabs.iter().position(|other| *other == slab).expect("it is one of the class");
            self.slabs.swap_remove(at);
            (Some(slab), owner)
        }
    }

    /// What is found in the next blocks, not to be dropped under the lock; false at the end. From the last slab to the first:
    /// where one is freed meanwhile the last takes its place, so that none is missed.
    fn look<T>(
        &self,
        place: &mut Place<R>,
        found: &mut Vec<T>,
        look: &mut impl FnMut(NonNull<u8>) -> Option<T>,
    ) -> bool {
        place.slabs = place.slabs.min(self.slabs.len());
        while let Some(slab) = place.slabs.checked_sub(1).map(|at| self.slabs[at]) {
            if !ptr::eq(place.within, slab.as_ptr()) {
                // The next one, or another one that has taken its place.
                (place.within, place.from) = (slab.as_ptr(), 0);
            }
            // SAFETY: ours.
            let header = unsafe { slab.as_ref() };
            while place.from < header.fresh {
                // SAFETY: within the slab, which under the lock stays.
                let block = unsafe { block_at(slab, place.from, header.block_size) };
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

    /// # Safety
    /// The slab is ours, and not in the list.
    unsafe fn link(&mut self, mut slab: NonNull<Slab<R>>) {
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
    unsafe fn unlink(&mut self, slab: NonNull<Slab<R>>) {
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
        }
    }
}

impl<R: Owner> Slab<R> {
    /// The next block that was never handed out.
    ///
    /// # Safety
    /// There is one; `start` is the slab, whose class's lock is held.
    unsafe fn carve(&mut self, start: NonNull<Slab<R>>) -> NonNull<Free> {
        // SAFETY: promised by the caller; within the slab, and nobody's.
        unsafe {
            let block = block_at(start, self.fresh, self.block_size);
            self.fresh += 1;
            R::prepare(block);
            block.cast()
        }
    }

    fn id_at(&self, address: usize) -> u64 {
        let offset = address & (SLAB_SIZE - 1);
        self.first_id + (offset.saturating_sub(HEADER) / self.block_size as usize) as u64
    }
}

fn new_slab<R: Owner>(owner: *const R, block_size: usize) -> NonNull<Slab<R>> {
    // SAFETY: an area has a size.
    let fresh = unsafe { std::alloc::alloc(AREA) };
    let Some(area) = NonNull::new(fresh) else { handle_alloc_error(AREA) };
    // SAFETY: twice the size of a slab has room for one that begins at a multiple of its size.
    let slab = unsafe { area.add(area.addr().get().wrapping_neg() & (SLAB_SIZE - 1)) }.cast::<Slab<R>>();
    let blocks = ((SLAB_SIZE - HEADER) / block_size) as u32;
    // SAFETY: the caller has the owner.
    let first_id = unsafe { &*owner }.fresh_ids(u64::from(blocks));
    let (prev, next, free) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let block_size = block_size as u32;
    let header = Slab { owner, prev, next, free, block_size, fresh: 0, used: 0, blocks, first_id, area };
    // SAFETY: ours, aligned, and large enough for its header.
    unsafe { slab.write(header) };
    slab
}

/// # Safety
/// Within the slab.
unsafe fn block_at<R>(slab: NonNull<Slab<R>>, at: u32, block_size: u32) -> NonNull<u8> {
    // SAFETY: promised by the caller.
    unsafe { slab.cast::<u8>().add(HEADER + at as usize * block_size as usize) }
}

/// The slab of a block.
#[inline]
fn slab_of<R>(block: NonNull<u8>) -> NonNull<Slab<R>> {
    block.cast::<Slab<R>>().map_addr(|addr| {
        // The header is in front of the first block, so the address is not null.
        NonZero::new(addr.get() & !(SLAB_SIZE - 1)).expect("a slab does not begin at address 0")
    })
}

/// The owner of a block.
///
/// # Safety
/// The block is in use, by what calls or kept so by it.
#[inline]
pub(super) unsafe fn owner_of<R>(block: NonNull<u8>) -> *const R {
    // SAFETY: promised by the caller; the field never changes.
    unsafe { (&raw const (*slab_of::<R>(block).as_ptr()).owner).read() }
}

/// The number of a block.
///
/// # Safety
/// As [`owner_of`].
pub(super) unsafe fn id_of<R>(block: NonNull<u8>) -> u64 {
    let slab = slab_of::<R>(block);
    // SAFETY: promised by the caller; neither field changes.
    let (first_id, block_size) =
        unsafe { ((&raw const (*slab.as_ptr()).first_id).read(), (&raw const (*slab.as_ptr()).block_size).read()) };
    let offset = block.addr().get() & (SLAB_SIZE - 1);
    first_id + ((offset - HEADER) / block_size as usize) as u64
}

impl FreeList {
    #[inline]
    fn pop<R: Owner>(&self, owner: &R, class: usize) -> NonNull<Free> {
        if let Some(block) = NonNull::new(self.head.get()) {
            // SAFETY: blocks on the list are free and this worker's.
            self.head.set(unsafe { block.as_ref().next });
            self.len.set(self.len.get() - 1);
            return block;
        }
        let stock = NonNull::new(self.stock.get());
        let block = stock.unwrap_or_else(|| {
            NonNull::new(owner.blocks().take(owner, class, Wanted::Stock)).expect("a block was asked for")
        });
        // SAFETY: as above.
        self.stock.set(unsafe { block.as_ref().next });
        block
    }
}

impl FreeTasks {
    pub(crate) fn new() -> FreeTasks {
        let empty =
            || FreeList { head: Cell::new(ptr::null_mut()), len: Cell::new(0), stock: Cell::new(ptr::null_mut()) };
        FreeTasks { lists: (0..CLASSES).map(|_| empty()).collect(), spilled: Cell::new(0) }
    }

    /// A block, of those that are kept or a new one.
    #[inline]
    pub(crate) fn pop<R: Owner>(&self, owner: &R, class: usize) -> NonNull<u8> {
        self.lists[class].pop(owner, class).cast()
    }

    /// Keeps a block; where there are many already, gives those back.
    ///
    /// # Safety
    /// As [`Blocks::give_one`]; all blocks here are of that owner.
    pub(crate) unsafe fn push<R: Owner>(&self, owner: *const R, class: usize, block: NonNull<u8>) {
        let block = block.cast::<Free>();
        let list = &self.lists[class];
        if list.len.get() >= KEPT_MAX {
            self.spilled.set(self.spilled.get() + list.len.replace(0));
            // SAFETY: promised by the caller; the blocks are free, and the list gives them up.
            unsafe { Blocks::give(owner, class, list.head.replace(ptr::null_mut())) };
        }
        // SAFETY: promised by the caller; a block has room for a link.
        unsafe { block.write(Free { next: list.head.get() }) };
        list.head.set(block.as_ptr());
        list.len.set(list.len.get() + 1);
    }

    /// For a worker without work: after a burst, gives back what it keeps.
    pub(crate) fn give_back<R: Owner>(&self, owner: &R) {
        if self.spilled.get() >= BURST {
            self.spilled.set(0);
            self.give_all(owner);
        }
    }

    /// Gives back all that is kept.
    pub(crate) fn give_all<R: Owner>(&self, owner: &R) {
        for (class, list) in self.lists.iter().enumerate() {
            list.len.set(0);
            // SAFETY: the worker's own free blocks, which it gives up; it has the owner.
            unsafe {
                Blocks::give(owner, class, list.head.replace(ptr::null_mut()));
                Blocks::give(owner, class, list.stock.replace(ptr::null_mut()));
            }
        }
    }
}

/// How many blocks somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    One,
    /// What a worker keeps.
    Stock,
}

impl Wanted {
    fn freed(self) -> usize {
        if self == Wanted::One { 1 } else { KEPT_MAX / 2 }
    }

    fn fresh(self, block_size: u32) -> usize {
        if self == Wanted::One { 1 } else { STOCK / block_size as usize }
    }
}

/// In a model a slab has two blocks, and a worker keeps two.
const MODEL: bool = cfg!(any(dapple_loom, dapple_shuttle));

/// The least that a task takes: its header, and room for an error.
const BLOCK_MIN: usize = if MODEL { 448 } else { mem::size_of::<Header>() + 8 };

/// Blocks up to this size come from slabs.
const BLOCK_MAX: usize = if MODEL { BLOCK_MIN } else { 2_048 };

/// From one size of block to the next.
const STEP: usize = 8;

/// What is aligned to more has an allocation of its own.
const BLOCK_ALIGN_MAX: usize = 16;

const CLASSES: usize = (BLOCK_MAX - BLOCK_MIN) / STEP + 1;

/// Bytes in front of the first block; a multiple of every alignment.
const HEADER: usize = mem::size_of::<Slab<()>>();

/// Large, as the allocator loses a page for each.
const SLAB_SIZE: usize = if MODEL { 1 << 10 } else { 1 << 20 };

/// What the allocator is asked for, so that a slab can begin at a multiple of its size. What is in front of it and behind is
/// never touched. Asked for the alignment itself, glibc does not find what it was given back, once it has stopped mapping
/// such sizes one by one: 250,000 tasks that came and went grew a process by 10 MB each time.
const AREA: Layout = match Layout::from_size_align(2 * SLAB_SIZE, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("16 is an alignment"),
};

/// A worker keeps at most so many blocks of a class that it has freed,
const KEPT_MAX: usize = if MODEL { 2 } else { 64 };

/// ... and gets so many bytes of fresh ones.
const STOCK: usize = if MODEL { BLOCK_MIN } else { 16 << 10 };

/// So many blocks that went back to their slabs are a burst.
const BURST: usize = 4_096;

/// Tasks that a walk takes at once.
const STRETCH: usize = 64;

const _: () = assert!(BLOCK_MIN.is_multiple_of(STEP) && HEADER.is_multiple_of(64));
