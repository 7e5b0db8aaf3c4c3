//! Memory for colors: slabs of 64, each color in two cache lines of its own.
//!
//! The allocator's 128 bytes do not start on a line, so neighboring colors would share one, and two workers that run
//! them would write to the same line all the time. Slabs cost 128 bytes a color, no more. The allocator adds its header,
//! and loses what it takes to begin on a line: 2 bytes a color if it is asked for one slab at a time, and a quarter of one
//! where eight come from one area. Slabs of an area are untouched until they are needed, so that a runtime with few colors
//! has few pages; they are used again for other colors, and given back when the runtime ends.

use std::alloc::{Layout, handle_alloc_error};
use std::mem;
use std::ptr::{self, NonNull};

use crate::color::cell::ColorCell;
use crate::runtime::shared::Shared;
use crate::sync::lock::Lock;

/// The colors of one runtime, in use and free.
pub(crate) struct Pool {
    slots: Lock<Slots>,
}

struct Slots {
    free: *mut Free,
    /// Each with room for [`AREA_SLABS`] slabs.
    areas: Vec<NonNull<ColorCell>>,
    /// Slabs that are used, from the first one of the first area on.
    slabs: usize,
}

/// A free slot; the link is stored in the slot itself, and the place of the color's runtime is null.
struct Free {
    next: *mut Free,
}

// SAFETY: free slots and slabs are owned by the pool, and touched under its lock.
unsafe impl Send for Slots {}

impl Slots {
    /// The first slot of a slab.
    fn slab(&self, slab: usize) -> Option<NonNull<ColorCell>> {
        // SAFETY: within the area.
        let start = || unsafe { self.areas[slab / AREA_SLABS].add(slab % AREA_SLABS * SLAB_COLORS) };
        (slab < self.slabs).then(start)
    }

    /// Adds a slab, if an area has room for one.
    fn add_slab(&mut self) -> bool {
        if self.slabs == self.areas.len() * AREA_SLABS {
            return false;
        }
        self.slabs += 1;
        let slab = self.slab(self.slabs - 1).expect("it was counted");
        for order in (0..SLAB_COLORS).rev() {
            // SAFETY: within the slab, which is new.
            unsafe { self.push(slab.add(slot_at(order)).cast()) };
        }
        true
    }

    fn pop(&mut self) -> Option<NonNull<ColorCell>> {
        let slot = NonNull::new(self.free)?;
        // SAFETY: slots on the list are free, and hold a link.
        self.free = unsafe { slot.as_ref() }.next;
        Some(slot.cast())
    }

    /// # Safety
    /// The slot is of one of the pool's slabs, and nobody uses it.
    unsafe fn push(&mut self, slot: NonNull<Free>) {
        // SAFETY: promised by the caller; a slot has room for a link.
        unsafe {
            slot.write(Free { next: self.free });
            set_runtime(slot.cast(), ptr::null());
        }
        self.free = slot.as_ptr();
    }
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool { slots: Lock::new(Slots { free: ptr::null_mut(), areas: Vec::new(), slabs: 0 }) }
    }

    /// Moves a color into a slot.
    pub(crate) fn put(&self, cell: ColorCell) -> NonNull<ColorCell> {
        loop {
            let mut slots = self.slots.lock();
            if let Some(slot) = slots.pop() {
                // SAFETY: a slot has the size and alignment of a color, and was free. Under the lock: see `each`.
                unsafe { slot.write(cell) };
                return slot;
            }
            if !slots.add_slab() {
                drop(slots);
                self.grow();
            }
        }
    }

    /// Visits the colors of a slab from the given slot on, until `visit` returns false. Returns the slot where that was,
    /// [`SLAB_COLORS`] at the end, `None` if there is no such slab. Colors are not freed while they are visited; `visit`
    /// must not wait for a home lock.
    pub(crate) fn each(&self, slab: usize, from: usize, mut visit: impl FnMut(&ColorCell) -> bool) -> Option<usize> {
        let slots = self.slots.lock();
        let slab = slots.slab(slab)?;
        // SAFETY: within the slab; the runtime says whether there is a color, which cannot change under the lock.
        let missed = (from..SLAB_COLORS).find(|&at| unsafe {
            let slot = slab.add(at);
            !runtime(slot).is_null() && !visit(slot.as_ref())
        });
        Some(missed.unwrap_or(SLAB_COLORS))
    }

    /// Adds an area.
    #[cold]
    fn grow(&self) {
        // SAFETY: an area has a size.
        let fresh = unsafe { std::alloc::alloc(AREA) };
        let Some(area) = NonNull::new(fresh) else { handle_alloc_error(AREA) };
        self.slots.lock().areas.push(area.cast());
    }

    /// Takes a slot back.
    ///
    /// # Safety
    /// It came from [`Pool::put`] of this pool, and nobody can reach it any more.
    pub(crate) unsafe fn take_back(&self, slot: NonNull<ColorCell>) {
        // SAFETY: promised by the caller; dropped once, here.
        unsafe {
            let mut slots = self.slots.lock();
            // Under the lock, see `each`; it frees the side record at most.
            slot.drop_in_place();
            slots.push(slot.cast());
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for area in self.slots.lock().areas.drain(..) {
            // SAFETY: allocated with this layout in `grow`. Colors hold the runtime, so none of them is left.
            unsafe { std::alloc::dealloc(area.as_ptr().cast(), AREA) };
        }
    }
}

/// The runtime of the color in a slot, or null where there is none.
///
/// # Safety
/// The slot is one of the pool's, whose lock is held.
unsafe fn runtime(slot: NonNull<ColorCell>) -> *const Shared {
    // SAFETY: promised by the caller; a free slot has null there. The field does not change while there is a color.
    unsafe { (&raw const (*slot.as_ptr()).shared).read() }
}

/// # Safety
/// As [`runtime`]; there is no color.
unsafe fn set_runtime(slot: NonNull<ColorCell>, to: *const Shared) {
    // SAFETY: promised by the caller.
    unsafe { (&raw mut (*slot.as_ptr()).shared).write(to) };
}

// The link of a free slot leaves that field alone.
const _: () = assert!(mem::offset_of!(ColorCell, shared) >= mem::size_of::<Free>());

/// The slot that is handed out as number `order` of a slab: the even ones first, the odd ones after that, both in steps
/// of [`SPREAD`]. Colors made one after another often run one after another, and in neighboring slots, or in steps that
/// are all alike, the processor would fetch ahead what another worker is writing.
const fn slot_at(order: usize) -> usize {
    let half = SLAB_COLORS / 2;
    (order * SPREAD % half) * 2 + order / half
}

const SPREAD: usize = 5;

/// Colors in a slab of two pages.
pub(crate) const SLAB_COLORS: usize = 64;

/// Slabs of an area of 64 KiB, which is small enough for the usual allocators not to ask the kernel for each.
const AREA_SLABS: usize = 8;

const AREA: Layout = match Layout::array::<ColorCell>(AREA_SLABS * SLAB_COLORS) {
    Ok(layout) => layout,
    Err(_) => panic!("some kilobytes are a valid layout"),
};
