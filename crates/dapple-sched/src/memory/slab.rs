//! Slabs of blocks of one size, and their free blocks: the memory of callbacks, colors and tasks.
//!
//! | kind | sizes of block | a slab | belongs to | freed by | workers keep |
//! |---|---|---|---|---|---|
//! | callbacks (`block`) | 64, 256 | 256 KiB | the process | any thread | two chains of each size; the store, 64 more |
//! | tasks (`task/memory`) | 40 to 2,048 in steps of 8 | 1 MiB | a runtime | any thread | two chains of each size |
//! | colors (`pool`) | 128 | 1 MiB | a runtime | any thread | none |
//!
//! A slab begins at a multiple of its size, with its constant data, [`About`], which is found from
//! the address of a block. Its variable data is in its [`Class`], under that class's lock. Pages of
//! a slab become resident at the first write, so blocks that were never handed out cost nothing.
//!
//! | | in `partial` of its class | next |
//! |---|---|---|
//! | some blocks free | yes | the last one is taken: out of the list; the last one is returned: freed, or kept as the only one |
//! | none free | no | one is given back: into the list |
//!
//! A slab has a count on its owner while one of its blocks is in use, or kept by a worker or by the
//! store. So the user of a block may use the owner and the slab.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::cmp;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::sync::lock::Lock;

/// The use of blocks.
pub(crate) trait Kind: Sized + 'static {
    /// The owner of the blocks.
    type Owner: Send + Sync;

    /// A power of two.
    const SLAB_SIZE: usize;

    /// The first block begins at a multiple of it.
    const ALIGN: usize;

    /// The order in which 64 neighbors are first used.
    const ORDER: [u8; GROUP] = in_steps(1);

    /// Chains that the store keeps for workers.
    const CHAINS_MAX: usize = 0;

    /// Whether the kernel must supply the slabs, and take them back. Glibc maps an allocation if it
    /// is at least as large as the largest freed so far; the rest comes from one address range, of
    /// which only the end can go back. An area is large enough, after others were freed, if it
    /// fills whole pages together with glibc's header; one with a round size is not.
    const MAPPED: bool = false;

    fn size_of_class(class: usize) -> usize;

    /// Number of blocks in a chain.
    fn chain_len(class: usize) -> usize;

    fn class(owner: &Self::Owner, class: usize) -> &Lock<Class<Self>>;

    /// A count that keeps the owner.
    fn counted(owner: &Self::Owner) -> Count<Self::Owner>;

    /// The first of `count` unused numbers of the owner.
    fn fresh_ids(_owner: &Self::Owner, _count: u64) -> u64 {
        0
    }

    /// Prepares a block that was never handed out for [`Class::visit`]. While a block is free, its
    /// kind must not use its first word.
    fn prepare(_block: &Block<Self>) {}
}

/// A count that keeps an owner.
pub(crate) enum Count<T: 'static> {
    #[cfg_attr(dapple_loom, allow(dead_code, reason = "models have no statics"))]
    Static(&'static T),
    Counted(Arc<T>),
}

impl<T> Count<T> {
    fn owner(&self) -> &T {
        match self {
            Count::Static(owner) => owner,
            Count::Counted(owner) => owner,
        }
    }
}

/// A block, its one owner's. It keeps its slab, and by that the slab's owner.
#[repr(transparent)]
pub(crate) struct Block<K: Kind>(NonNull<About<K>>);

/// The constant data of a slab.
#[repr(C, align(64))]
pub(crate) struct About<K: Kind> {
    owner: *const K::Owner,
    class: usize,
    block_size: usize,
    /// The first of the numbers of its blocks.
    first_id: u64,
    /// The allocation that contains it.
    area: NonNull<u8>,
    /// The slab's place in its class: read and written under the class's lock.
    at: AtomicUsize,
}

/// Free blocks, linked through their first words.
pub(crate) struct Chain<K: Kind> {
    head: Cell<*mut Link>,
    len: Cell<usize>,
    of: PhantomData<Block<K>>,
}

// SAFETY: memory that nothing else uses; threads may share the owner of its slabs, as the trait
// asks.
unsafe impl<K: Kind> Send for Chain<K> {}

/// The first word of a free block.
struct Link {
    next: *mut Link,
}

/// Slabs of one size of block.
pub(crate) struct Class<K: Kind> {
    slabs: Vec<Option<Slab<K>>>,
    /// Slabs in all; the vector may have holes.
    len: usize,
    /// Indices of the slabs with free blocks.
    partial: Vec<usize>,
    /// The store: surplus chains of workers. These blocks count as used.
    chains: Vec<Chain<K>>,
}

pub(crate) struct Slab<K: Kind> {
    about: NonNull<About<K>>,
    free: Chain<K>,
    /// Blocks that were handed out at least once.
    fresh: usize,
    blocks: usize,
    /// A count, while a block is in use.
    owner: Option<Count<K::Owner>>,
}

// SAFETY: a slab owns its memory except for the blocks in use; threads may share its owner, as the
// trait asks.
unsafe impl<K: Kind> Send for Slab<K> {}

/// Parts that a class gives up. The caller drops them without the class's lock, because they may be
/// the last that keep the owner.
pub(crate) type Unused<K> = (Option<Slab<K>>, Option<Count<<K as Kind>::Owner>>);

/// The position of a walk through the blocks of a class.
#[derive(Default)]
pub(crate) struct Place {
    slab: usize,
    block: usize,
}

impl<K: Kind> Block<K> {
    /// # Safety
    /// From [`Block::into_raw`], and the caller gives it up.
    #[inline]
    pub(crate) unsafe fn from_raw(block: NonNull<u8>) -> Block<K> {
        Block(block.cast())
    }

    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline]
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline]
    pub(crate) fn about(&self) -> &About<K> {
        // SAFETY: in use as long as this value.
        unsafe { About::of(self.pointer()) }
    }
}

impl<K: Kind> About<K> {
    /// # Safety
    /// The block is in use for `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(block: NonNull<u8>) -> &'a About<K> {
        let head = block.cast::<About<K>>().map_addr(|addr| {
            // The header is before the first block, so the address is not null.
            NonZero::new(addr.get() & !(K::SLAB_SIZE - 1)).expect("a slab does not begin at address 0")
        });
        // SAFETY: promised by the caller; a slab is aligned to its size, and begins with this.
        unsafe { head.as_ref() }
    }

    /// The owner, which the caller's block keeps.
    #[inline]
    pub(crate) fn owner(&self) -> &K::Owner {
        // SAFETY: while a block is in use, its slab has a count.
        unsafe { &*self.owner }
    }

    pub(crate) fn class(&self) -> usize {
        self.class
    }

    fn is_of(&self, owner: *const K::Owner, class: usize) -> bool {
        ptr::eq(self.owner, owner) && self.class == class
    }

    pub(crate) fn id_at(&self, address: usize) -> u64 {
        let offset = address & (K::SLAB_SIZE - 1);
        self.first_id + (offset.saturating_sub(Slab::<K>::HEADER) / self.block_size) as u64
    }
}

impl<K: Kind> Chain<K> {
    pub(crate) const fn new() -> Chain<K> {
        Chain { head: Cell::new(ptr::null_mut()), len: Cell::new(0), of: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    #[inline]
    pub(crate) fn push(&self, block: Block<K>) {
        // SAFETY: the block is ours, and has room for a link (`Slab::new`).
        unsafe { block.0.cast().write(Link { next: self.head.get() }) };
        self.head.set(block.0.cast().as_ptr());
        self.len.set(self.len.get() + 1);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Block<K>> {
        let link = NonNull::new(self.head.get())?;
        // SAFETY: the blocks of a chain are its own, and `push` linked them.
        self.head.set(unsafe { link.as_ref() }.next);
        self.len.set(self.len.get() - 1);
        Some(Block(link.cast()))
    }

    /// All of it.
    pub(crate) fn take(&self) -> Chain<K> {
        self.replace(Chain::new())
    }

    /// Replaces the blocks with others; returns the former ones.
    pub(crate) fn replace(&self, by: Chain<K>) -> Chain<K> {
        self.head.swap(&by.head);
        self.len.swap(&by.len);
        by
    }
}

impl<K: Kind> Class<K> {
    pub(crate) const fn new() -> Class<K> {
        Class { slabs: Vec::new(), len: 0, partial: Vec::new(), chains: Vec::new() }
    }

    #[cfg(any(test, dapple_loom))]
    pub(crate) fn slabs(&self) -> usize {
        self.len
    }

    pub(crate) fn add(&mut self, slab: Slab<K>) {
        let hole = if self.len < self.slabs.len() { self.slabs.iter().position(Option::is_none) } else { None };
        let at = hole.unwrap_or(self.slabs.len());
        // Relaxed, here and below: under the lock.
        slab.about().at.store(at, Relaxed);
        if hole.is_none() {
            self.slabs.push(None);
        }
        self.slabs[at] = Some(slab);
        self.len += 1;
        self.partial.push(at);
    }

    /// A free block, if any slab has one.
    pub(crate) fn take_one(&mut self, owner: &K::Owner) -> Option<Block<K>> {
        let slab = self.slabs[*self.partial.last()?].as_mut()?;
        slab.keep(owner);
        let block = slab.free.pop().or_else(|| slab.carve(1).pop());
        if slab.is_full() {
            self.partial.pop();
        }
        block
    }

    /// As many free blocks as a chain has, or as one slab has: freed ones first, else fresh ones.
    fn take_chain(&mut self, owner: &K::Owner, class: usize) -> Chain<K> {
        let chain = Chain::new();
        let Some(slab) = self.partial.last().and_then(|&at| self.slabs[at].as_mut()) else { return chain };
        slab.keep(owner);
        // Freed blocks are not in the cache, and the lock is held meanwhile.
        let freed = cmp::min(K::chain_len(class), FREED_MAX);
        while chain.len() < freed
            && let Some(block) = slab.free.pop()
        {
            chain.push(block);
        }
        let chain = if chain.len() > 0 { chain } else { slab.carve(K::chain_len(class)) };
        if slab.is_full() {
            self.partial.pop();
        }
        chain
    }

    /// Takes a block back. Returns the parts that are unused from here on.
    #[inline]
    pub(crate) fn give(&mut self, block: Block<K>) -> Option<Unused<K>> {
        let at = block.about().at.load(Relaxed);
        let slab = self.slabs[at].as_mut().expect("a block keeps its slab");
        assert!(ptr::eq(block.about(), slab.about.as_ptr()), "a block goes back to its own class");
        if slab.is_full() {
            self.partial.push(at);
        }
        slab.free.push(block);
        (slab.used() == 0).then(|| self.let_go(at))
    }

    /// Frees an unused slab, unless it is the only one, and its count on the owner.
    #[cold]
    fn let_go(&mut self, at: usize) -> Unused<K> {
        let owner = self.slabs[at].as_mut().and_then(|slab| slab.owner.take());
        if self.len == 1 {
            return (None, owner);
        }
        self.len -= 1;
        self.partial.retain(|partial| *partial != at);
        (self.slabs[at].take(), owner)
    }

    /// Visits blocks that were handed out at least once, some of which are free, until `visit`
    /// returns false: the next call continues with that block. False at the end.
    pub(crate) fn visit(&self, place: &mut Place, mut visit: impl FnMut(NonNull<u8>) -> bool) -> bool {
        while let Some(slab) = self.slabs.get(place.slab) {
            // If another slab has taken its place by now, its blocks are new, and need no visit.
            while let Some(slab) = slab.as_ref().filter(|slab| place.block < slab.fresh) {
                if !visit(slab.block_at(place.block)) {
                    return true;
                }
                place.block += 1;
            }
            *place = Place { slab: place.slab + 1, block: 0 };
        }
        false
    }

    pub(crate) fn id_at(&self, address: usize) -> Option<u64> {
        let slab = self.slabs.iter().flatten().find(|slab| slab.about.addr().get() == address & !(K::SLAB_SIZE - 1))?;
        Some(slab.about().id_at(address))
    }
}

impl<K: Kind> Slab<K> {
    /// Bytes in front of the first block.
    const HEADER: usize = size_of::<About<K>>().next_multiple_of(K::ALIGN);

    /// The size of allocation that lets a slab begin at a multiple of its size. The parts before
    /// and after the slab are never touched. With the alignment itself as the request, glibc does
    /// not find freed memory again once it has stopped mapping such sizes separately: 250,000 tasks
    /// that came and went grew a process by 10 MB each time.
    const AREA: Layout = {
        let (more, align) = if K::MAPPED { (PAGE - 160, 64) } else { (0, 16) };
        match Layout::from_size_align(2 * K::SLAB_SIZE + more, align) {
            Ok(layout) => layout,
            Err(_) => panic!("the alignment is a power of two"),
        }
    };

    pub(crate) fn new(owner: &K::Owner, class: usize) -> Slab<K> {
        const { assert!(K::SLAB_SIZE.is_power_of_two() && K::ALIGN.is_power_of_two() && each_once(&K::ORDER)) };
        let block_size = K::size_of_class(class);
        assert!(block_size >= size_of::<Link>() && block_size.is_multiple_of(align_of::<Link>()));
        let blocks = (K::SLAB_SIZE - Self::HEADER) / block_size;
        let first_id = K::fresh_ids(owner, blocks as u64);
        // SAFETY: an area has a size. It has room for a slab at a multiple of its size, and the
        // slab for its header.
        let about = unsafe {
            let area = NonNull::new(alloc(Self::AREA)).unwrap_or_else(|| handle_alloc_error(Self::AREA));
            let about = area.add(area.addr().get().wrapping_neg() & (K::SLAB_SIZE - 1)).cast();
            about.write(About { owner, class, block_size, first_id, area, at: AtomicUsize::new(0) });
            about
        };
        Slab { about, free: Chain::new(), fresh: 0, blocks, owner: None }
    }

    /// Blocks in use, including those that workers and the store keep.
    fn used(&self) -> usize {
        self.fresh - self.free.len()
    }

    fn is_full(&self) -> bool {
        self.used() == self.blocks
    }

    /// Counts on the owner, before a block is in use.
    fn keep(&mut self, owner: &K::Owner) {
        if self.used() == 0 {
            let counted = K::counted(owner);
            assert!(ptr::eq(counted.owner(), self.about().owner), "a slab has one owner");
            self.owner = Some(counted);
        }
    }

    /// Up to `wanted` blocks that were never handed out, in the order of their addresses: a walk
    /// through tasks in the order in which they were made then is a walk through memory.
    fn carve(&mut self, wanted: usize) -> Chain<K> {
        let (from, chain) = (self.fresh, Chain::new());
        self.fresh = cmp::min(from + wanted, self.blocks);
        for order in (from..self.fresh).rev() {
            let block = Block(self.block_at(order).cast());
            K::prepare(&block);
            chain.push(block);
        }
        chain
    }

    fn about(&self) -> &About<K> {
        // SAFETY: written by `new`, and never moved.
        unsafe { self.about.as_ref() }
    }

    /// The block that is handed out first after `order` others.
    fn block_at(&self, order: usize) -> NonNull<u8> {
        assert!(order < self.blocks);
        let group = order - order % GROUP;
        let at = if group + GROUP <= self.blocks { group + usize::from(K::ORDER[order % GROUP]) } else { order };
        // SAFETY: within the slab.
        unsafe { self.about.cast::<u8>().add(Self::HEADER + at * self.about().block_size) }
    }
}

impl<K: Kind> Drop for Slab<K> {
    fn drop(&mut self) {
        // SAFETY: made by `new`. A class frees a slab only when no block of it is in use. A slab in
        // use keeps the owner alive, and so its classes.
        unsafe { dealloc(self.about().area.as_ptr(), Self::AREA) };
    }
}

/// One block.
#[inline(never)]
pub(crate) fn take_one<K: Kind>(owner: &K::Owner, class: usize) -> Block<K> {
    let slabs = K::class(owner, class);
    loop {
        let mut state = slabs.lock();
        if let Some(block) = state.take_one(owner) {
            return block;
        }
        // Blocks that workers have freed are used again before new slabs are made.
        let chain = state.chains.pop();
        drop(state);
        match chain {
            Some(chain) => give(chain),
            None => grow::<K>(owner, class),
        }
    }
}

/// A block, and the rest of its chain.
#[inline(never)]
pub(super) fn take_chain<K: Kind>(owner: &K::Owner, class: usize) -> (Block<K>, Chain<K>) {
    let slabs = K::class(owner, class);
    loop {
        let mut state = slabs.lock();
        let chain = state.chains.pop().unwrap_or_else(|| state.take_chain(owner, class));
        drop(state);
        if let Some(block) = chain.pop() {
            return (block, chain);
        }
        grow::<K>(owner, class);
    }
}

#[cold]
fn grow<K: Kind>(owner: &K::Owner, class: usize) {
    let slab = Slab::new(owner, class);
    K::class(owner, class).lock().add(slab);
}

/// Gives a chain to the store, or its blocks back if the store is full.
pub(super) fn give_chain<K: Kind>(chain: Chain<K>) {
    let Some(block) = chain.pop() else { return };
    // SAFETY: the block keeps the owner. Before the lock is released, the block is in the chain
    // again, and the chain in the store.
    let slabs = K::class(unsafe { NonNull::from(block.about().owner()).as_ref() }, block.about().class);
    chain.push(block);
    let mut state = slabs.lock();
    if state.chains.len() < K::CHAINS_MAX {
        return state.chains.push(chain);
    }
    drop(state);
    give(chain);
}

/// Gives blocks back to the slabs.
pub(crate) fn give<K: Kind>(chain: Chain<K>) {
    let mut next = chain.pop();
    while let Some(block) = next {
        let (owner, class) = (NonNull::from(block.about().owner()), block.about().class);
        // SAFETY: the block keeps the owner, and after that the parts that its slab gives up do.
        let mut slabs = K::class(unsafe { owner.as_ref() }, class).lock();
        let mut unused = slabs.give(block);
        let mut given = 1;
        next = chain.pop();
        while unused.is_none()
            && given < FREED_MAX
            && let Some(block) = next.take_if(|block| block.about().is_of(owner.as_ptr(), class))
        {
            unused = slabs.give(block);
            given += 1;
            next = chain.pop();
        }
        drop(slabs);
        // This may end the owner, so nothing here may borrow it.
        drop(unused);
    }
}

/// Gives one block back to its slab.
pub(crate) fn give_one<K: Kind>(block: Block<K>) {
    let chain = Chain::new();
    chain.push(block);
    give(chain);
}

/// Gives a chain of the store back to the slabs; false if the store has none.
pub(super) fn give_back_stored<K: Kind>(owner: &K::Owner, class: usize) -> bool {
    let chain = K::class(owner, class).lock().chains.pop();
    chain.map(give).is_some()
}

/// Visits the results of `look` for all blocks of a class that were handed out once. Some of them
/// are free, and blocks handed out meanwhile may be missing. `look` runs under a lock; its result
/// keeps the block from being freed. `visit` runs without the lock.
pub(crate) fn walk<K: Kind, T: Clone>(
    class: &Lock<Class<K>>,
    mut look: impl FnMut(NonNull<u8>) -> Option<T>,
    mut visit: impl FnMut(T),
) {
    let mut place = Place::default();
    // Kept until the next batch was taken, so that the slab still exists.
    let mut last: Option<T> = None;
    loop {
        let mut found = Vec::with_capacity(STRETCH);
        let more = class.lock().visit(&mut place, |block| {
            let room = found.len() < STRETCH;
            if room {
                found.extend(look(block));
            }
            room
        });
        drop(std::mem::replace(&mut last, found.last().cloned()));
        found.into_iter().for_each(&mut visit);
        if !more {
            break;
        }
    }
}

/// An order that goes through a group in steps of `step` blocks; `step` is odd.
pub(crate) const fn in_steps(step: usize) -> [u8; GROUP] {
    let mut order = [0; GROUP];
    let mut at = 0;
    while at < GROUP {
        order[at] = (at * step % GROUP) as u8;
        at += 1;
    }
    order
}

const fn each_once(order: &[u8; GROUP]) -> bool {
    let (mut seen, mut at) = (0u64, 0);
    while at < GROUP {
        seen |= 1 << order[at];
        at += 1;
    }
    seen == u64::MAX
}

/// The number of neighbors that have a separate order.
pub(crate) const GROUP: usize = 64;

const PAGE: usize = 4096;

/// The most blocks that are searched, or freed, under one lock.
const FREED_MAX: usize = 64;

/// The number of blocks that a walk takes at once.
const STRETCH: usize = 64;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::sync::Weak;

    use super::*;

    struct Own(Lock<Class<Bytes>>, Weak<Own>);

    struct Bytes;

    impl Kind for Bytes {
        type Owner = Own;
        const SLAB_SIZE: usize = 16 << 10;
        const ALIGN: usize = 128;
        const ORDER: [u8; GROUP] = in_steps(37);
        const CHAINS_MAX: usize = 1;

        fn size_of_class(_: usize) -> usize {
            192
        }

        fn chain_len(_: usize) -> usize {
            64
        }

        fn class(own: &Own, _: usize) -> &Lock<Class<Bytes>> {
            &own.0
        }

        fn counted(own: &Own) -> Count<Own> {
            Count::Counted(own.1.upgrade().expect("it is used"))
        }
    }

    fn taken(own: &Own, count: usize) -> Vec<Block<Bytes>> {
        (0..count).map(|_| take_one(own, 0)).collect()
    }

    #[test]
    fn blocks_are_apart_and_come_back() {
        let own = Arc::new_cyclic(|this| Own(Lock::new(Class::new()), this.clone()));
        let mut blocks = taken(&own, 1_000);
        blocks.sort_by_key(Block::pointer);
        for pair in blocks.windows(2) {
            assert!(pair[1].pointer().addr().get() - pair[0].pointer().addr().get() >= 192);
            assert_eq!(pair[0].pointer().addr().get() % 64, 0);
        }
        let slabs = own.0.lock().slabs();
        assert_eq!(slabs, 1_000usize.div_ceil(((16 << 10) - 128) / 192));
        assert_eq!(Arc::strong_count(&own), 1 + slabs, "a slab that is used counts on its owner");
        for block in blocks {
            // SAFETY: written as a whole, so that an overlap would destroy a neighbor's link or a
            // header.
            unsafe { block.pointer().write_bytes(0xff, 192) };
            give_one(block);
        }
        assert_eq!((own.0.lock().slabs(), Arc::strong_count(&own)), (1, 1));
        // Stored chains are used first, and then single blocks, before a new slab is made.
        let (first, rest) = take_chain::<Bytes>(&own, 0);
        let (at, len) = (first.pointer(), rest.len() + 1);
        assert_eq!(len, 64);
        rest.push(first);
        give_chain(rest);
        let (first, rest) = take_chain::<Bytes>(&own, 0);
        assert_eq!((first.pointer(), rest.len() + 1), (at, len));
        rest.push(first);
        give_chain(rest);
        let blocks = taken(&own, ((16 << 10) - 128) / 192);
        assert_eq!(own.0.lock().slabs(), 1);
        blocks.into_iter().for_each(give_one);
        assert_eq!((own.0.lock().slabs(), Arc::strong_count(&own)), (1, 1));
    }
}
