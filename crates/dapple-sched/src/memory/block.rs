//! Memory for queued callbacks: blocks of 64 and of 256 bytes from per-worker free lists.
//!
//! An allocator call per callback costs a third of the scheduler's speed, so a worker keeps the
//! blocks that it frees and reuses them. If one worker frees the blocks that another allocates,
//! chains of 64 blocks travel through a store (`slab`), which gives unused memory back. For 64
//! bytes that start on a separate cache line the allocator needs 80 to 192 bytes; a slab needs 65.
//!
//! The number of kept blocks is bounded, but any block keeps its slab: if blocks are freed in
//! another order than they were made, a few kept blocks could hold all memory of a burst. So a
//! worker that has passed 4,096 blocks on gives its own and the store's blocks back to the slabs
//! when it next runs out of work, before it sleeps. A worker that always has work keeps its blocks.
//!
//! The small size holds a node and 40 bytes of closure, the large one a request for two or three
//! colors. Anything larger has a separate allocation; in models, everything has.

use std::mem::{self, MaybeUninit};
use std::ptr::NonNull;

use super::free_list::FreeList;
use super::slab::{self, Block, Class, Count, Kind};
use crate::runtime::context;
use crate::runtime::switches;
use crate::sync::lock::Lock;
use crate::worker::Worker;

/// The free blocks of one worker. Only its own thread touches them.
pub(crate) struct Blocks {
    lists: [FreeList<Callbacks>; CLASSES.len()],
}

struct Callbacks;

/// The slabs of the process.
struct Heap {
    classes: [Lock<Class<Callbacks>>; CLASSES.len()],
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
fn heap() -> &'static Heap {
    static HEAP: Heap = Heap { classes: [const { Lock::new(Class::new()) }; CLASSES.len()] };
    &HEAP
}

#[cfg(any(dapple_loom, dapple_shuttle))]
fn heap() -> &'static Heap {
    unreachable!("models have no blocks");
}

impl Kind for Callbacks {
    type Owner = Heap;

    const SLAB_SIZE: usize = 256 << 10;

    /// The size of a page, so that a fresh chain of small blocks fills one page.
    const ALIGN: usize = 4096;

    /// Not in the order of addresses. A color's callbacks cycle through its blocks. With equal
    /// steps between blocks the processor prefetches past the last one, perhaps a line that another
    /// worker is writing. In address order, nine of 64 runs of W1 with 64 in flight on two workers
    /// took 18 to 25 ns of CPU instead of 14; in this order, none of 40.
    const ORDER: [u8; slab::GROUP] = slab::in_steps(37);

    const CHAINS_MAX: usize = 64;

    const MAPPED: bool = true;

    fn size_of_class(class: usize) -> usize {
        CLASSES[class]
    }

    fn chain_len(_class: usize) -> usize {
        CHAIN_LEN
    }

    fn class(heap: &Heap, class: usize) -> &Lock<Class<Callbacks>> {
        &heap.classes[class]
    }

    fn counted(_: &Heap) -> Count<Heap> {
        Count::Static(heap())
    }
}

impl Blocks {
    pub(crate) const fn new() -> Blocks {
        Blocks { lists: [const { FreeList::new() }; CLASSES.len()] }
    }

    #[inline]
    fn pop(&self, class: usize) -> Block<Callbacks> {
        self.lists[class].take().unwrap_or_else(|| self.lists[class].refill(heap(), class))
    }

    /// Called after callbacks have run: passes surplus blocks on.
    #[inline]
    pub(crate) fn trim(&self) {
        self.lists[SMALL].trim(|len| len >= CHAIN_LEN);
    }

    /// For a worker without work: after a burst, gives memory back, one chain of blocks at a time.
    /// True if there may be more.
    pub(crate) fn give_back_some(&self) -> bool {
        self.lists.iter().enumerate().any(|(class, list)| list.saw_burst() && list.give_back_some(heap(), class))
    }
}

/// The class of the smallest block that holds a `T`; `None` if none does.
const fn class_of<T>() -> Option<usize> {
    let mut class = 0;
    // Models keep track of each atomic, and have no static ones.
    while class < CLASSES.len() && cfg!(not(any(dapple_loom, dapple_shuttle))) {
        if mem::size_of::<T>() <= CLASSES[class] && mem::align_of::<T>() <= 64 {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// Moves `value` into a block, or into a separate allocation if it is too large.
#[inline]
pub(crate) fn alloc<T>(value: T) -> NonNull<T> {
    let block = alloc_uninit::<T>().cast();
    // SAFETY: memory for a `T`, owned by us.
    unsafe { block.write(value) };
    block
}

/// A block for a `T`, or a separate allocation if it is too large.
#[inline]
pub(crate) fn alloc_uninit<T>() -> NonNull<MaybeUninit<T>> {
    match const { class_of::<T>() } {
        Some(class) if switches::free_lists() => {
            let recycled = context::with_worker(|worker| worker.blocks.pop(class));
            recycled.unwrap_or_else(|| slab::take_one::<Callbacks>(heap(), class)).into_raw().cast()
        }
        _ => NonNull::from(Box::leak(Box::<T>::new_uninit())),
    }
}

/// As [`alloc_uninit`], if this worker's list has a block.
#[inline]
pub(crate) fn try_alloc_uninit<T>() -> Option<NonNull<MaybeUninit<T>>> {
    match const { class_of::<T>() } {
        Some(class) if switches::free_lists() => {
            let block = context::with_worker(|worker| worker.blocks.lists[class].take()).flatten()?;
            Some(block.into_raw().cast())
        }
        _ => None,
    }
}

/// Frees the memory of a value from [`alloc`], without dropping the contents.
///
/// # Safety
/// `value` must come from [`alloc`] for the same `T`, and its contents must have been moved out or
/// dropped.
#[inline]
pub(crate) unsafe fn free<T>(value: NonNull<T>) {
    match const { class_of::<T>() } {
        Some(class) if switches::free_lists() => {
            // SAFETY: promised by the caller: a block of that class.
            let block = unsafe { Block::from_raw(value.cast()) };
            let left = context::offer_worker(block, |worker, block| {
                // Makes room first, so that the list is not empty when the next block is taken.
                worker.blocks.lists[class].trim(|len| len >= CHAIN_LEN);
                worker.blocks.lists[class].keep(block);
                None
            });
            if let Some(block) = left {
                slab::give_one(block);
            }
        }
        // SAFETY: promised by the caller: a box. `MaybeUninit` keeps the contents from being
        // dropped again.
        _ => drop(unsafe { Box::from_raw(value.cast::<MaybeUninit<T>>().as_ptr()) }),
    }
}

/// As [`free`], for the worker of this thread, which calls [`Blocks::trim`] after a few of them.
///
/// # Safety
/// As there.
#[inline]
pub(crate) unsafe fn free_at<T>(worker: &Worker, value: NonNull<T>) {
    // SAFETY: promised by the caller: a block of that class.
    unsafe {
        if const { matches!(class_of::<T>(), Some(SMALL)) } && switches::free_lists() {
            worker.blocks.lists[SMALL].keep(Block::from_raw(value.cast()));
        } else {
            free(value);
        }
    }
}

/// The block sizes. Each size is a multiple of a cache line, and blocks begin on a line: two
/// neighbors may belong to two workers, which write to them for every callback.
const CLASSES: [usize; 2] = [64, 256];

/// The class of most callbacks.
const SMALL: usize = 0;

/// The least number of blocks that move between workers at a time.
const CHAIN_LEN: usize = 64;

/// Bytes of slabs at present, used or not.
#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
fn bytes() -> usize {
    heap().classes.iter().map(|class| class.lock().slabs() * Callbacks::SLAB_SIZE).sum()
}

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::{Duration, Instant};

    use super::bytes;
    use crate::{Color, Runtime};

    /// One test at a time measures the slabs.
    static SLABS: Mutex<()> = Mutex::new(());

    /// Callbacks of many colors are in memory in the order of their posts, and are freed color by
    /// color, so the last blocks that a worker keeps come from many slabs.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let _alone = SLABS.lock();
        let runtime = Runtime::builder().workers(1).build().expect("a runtime");
        let _entered = runtime.enter();
        let (open, gate) = mpsc::channel::<()>();
        Color::new().post(move || {
            let _ = gate.recv();
        });
        let colors: Vec<_> = (0..512).map(|_| Color::new()).collect();
        let before = bytes();
        for _ in 0..100 {
            colors.iter().for_each(|color| color.post(|| ()));
        }
        assert!(bytes() >= before + 3_000_000, "51,200 blocks of 64 bytes");
        drop(open);
        // This limits only how long the test hangs if it fails, not the work.
        let begin = Instant::now();
        while bytes() > before + 1_000_000 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(bytes() <= before + 1_000_000, "{} bytes are kept", bytes());
    }

    /// Turns that end early also give the blocks of their callbacks to the store.
    #[test]
    fn callbacks_from_outside_leave_no_blocks_behind_however_their_turns_end() {
        let _alone = SLABS.lock();
        let runtime = Runtime::builder().workers(1).panic_handler(|_| ()).build().expect("a runtime");
        let _entered = runtime.enter();
        let color = Color::new();
        let before = bytes();
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
        assert!(bytes() <= before + 500_000, "{} bytes more are kept", bytes() - before);
    }
}
