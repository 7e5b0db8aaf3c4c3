//! Memory for colors: each in two separate cache lines.
//!
//! The allocator's 128 bytes do not start on a line, so neighboring colors would share one, and two
//! workers that run them would write to the same line all the time. Slabs cost only 128.5 bytes a
//! color.

use std::mem;
use std::ptr::{self, NonNull};

use super::slab::{self, Block, Class, Count, Kind, Place, Slab};
use crate::color::cell::ColorCell;
use crate::runtime::shared::Shared;
use crate::sync::lock::Lock;

/// The colors of one runtime, in use and free.
pub(crate) struct Pool(Lock<Class<Colors>>);

/// In a free block, the pointer to the color's runtime is null.
struct Colors;

impl Kind for Colors {
    type Owner = Shared;

    /// Large, because the allocator loses a page for each slab.
    const SLAB_SIZE: usize = 1 << 20;

    const ALIGN: usize = 128;

    /// The even ones first, then the odd ones, both in steps of 5. Colors made one after the other
    /// often run one after the other. If they were adjacent, or at equal steps, the processor would
    /// prefetch lines that another worker is writing.
    const ORDER: [u8; slab::GROUP] = {
        let (steps, mut order) = (slab::in_steps(5), [0; slab::GROUP]);
        let mut at = 0;
        while at < slab::GROUP {
            order[at] = steps[at] % 32 * 2 + (at / 32) as u8;
            at += 1;
        }
        order
    };

    fn size_of_class(_class: usize) -> usize {
        size_of::<ColorCell>()
    }

    fn chain_len(_class: usize) -> usize {
        1
    }

    fn class(shared: &Shared, _class: usize) -> &Lock<Class<Colors>> {
        &shared.pool.0
    }

    fn counted(shared: &Shared) -> Count<Shared> {
        Count::Counted(shared.counted())
    }

    fn prepare(block: &Block<Colors>) {
        clear(block);
    }
}

/// Marks the block as free of a color.
fn clear(block: &Block<Colors>) {
    // SAFETY: the block is ours, and has room for a color.
    unsafe { (&raw mut (*block.pointer().cast::<ColorCell>().as_ptr()).shared).write(ptr::null()) };
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool(Lock::new(Class::new()))
    }

    /// Moves a color into a block of its runtime.
    pub(crate) fn put(shared: &Shared, cell: ColorCell) -> NonNull<ColorCell> {
        loop {
            let mut class = shared.pool.0.lock();
            if let Some(block) = class.take_one(shared) {
                let slot = block.into_raw().cast();
                // SAFETY: a block has the size and alignment of a color, and is ours. Under the
                // lock: see `each`.
                unsafe { slot.write(cell) };
                return slot;
            }
            drop(class);
            let slab = Slab::new(shared, 0);
            shared.pool.0.lock().add(slab);
        }
    }

    /// Visits colors from a position on, until `visit` returns false: the next call continues with
    /// that color. False at the end. No color is freed during the visit; `visit` must not wait for
    /// a home lock. Callers visit a few at a time, so that other threads can make colors in
    /// between.
    pub(crate) fn each(&self, place: &mut Place, mut visit: impl FnMut(&ColorCell) -> bool) -> bool {
        let mut left = slab::GROUP;
        self.0.lock().visit(place, |block| {
            let slot = block.cast::<ColorCell>();
            // SAFETY: a block that was handed out once. The block's runtime pointer says whether it
            // has a color; under the lock, that cannot change.
            let color = unsafe { if (*slot.as_ptr()).shared.is_null() { None } else { Some(slot.as_ref()) } };
            left -= 1;
            left > 0 && color.is_none_or(&mut visit)
        })
    }

    /// Takes a color back.
    ///
    /// # Safety
    /// It came from [`Pool::put`] of this runtime, and nothing can reach it any more.
    pub(crate) unsafe fn take_back(shared: &Shared, slot: NonNull<ColorCell>) {
        let mut class = shared.pool.0.lock();
        // SAFETY: promised by the caller; dropped once, here. Under the lock, see `each`; dropping
        // frees at most the side record.
        let block = unsafe {
            slot.drop_in_place();
            Block::from_raw(slot.cast())
        };
        clear(&block);
        let unused = class.give(block);
        drop(class);
        drop(unused);
    }
}

// The link of a free block must not overlap that field.
const _: () = assert!(mem::offset_of!(ColorCell, shared) >= size_of::<usize>());
