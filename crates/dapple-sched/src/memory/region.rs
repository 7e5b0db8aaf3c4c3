//! Where slabs of blocks come from: regions of sixteen, shared by the stores of all sizes of block.
//!
//! The slab of a block is found by its address, so slabs are aligned to their size. To ask the allocator for each of them
//! with that alignment loses half of the memory: it puts something of its own before each. It is asked for a whole region
//! instead, in which the slabs begin at the first address that is aligned. What is in front of them, and behind, is never
//! touched, and so is not resident where the allocator has fresh pages for a region, which the usual ones do; but for the
//! page of the region's header, which the allocator's own header is in as well. As pages become resident when they are
//! first written, a region of which little is used costs little.
//!
//! # A region
//!
//! | | where | next |
//! |---|---|---|
//! | some slabs free | in the list | the last one taken: out of the list; the last one given back: the spare, or freed |
//! | none free | nowhere | one given back: at the head of the list |
//! | all free | the spare; there is one at most | one taken, when the list is empty: into the list |
//!
//! All under the lock, which is not held while the allocator is called. A region that has just been full is the first that
//! is asked, and a region's slabs are taken from its beginning: where fewer are in use than before, they gather in fewer
//! regions, and the others fall free. What is not given back is therefore one unused region, and the free slabs of those
//! of which some slab is in use: sixteen times what is in use at worst, where one slab of each has something left in it.
//! Whether the allocator gives memory back to the kernel is up to it; glibc does so where the program has not freed larger
//! pieces before.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

use crate::sync::lock::Lock;

/// The regions of the process.
pub(crate) struct Regions {
    state: Lock<State>,
}

struct State {
    /// Regions with free slabs, and with used ones.
    partial: *mut Region,
    /// A region of which no slab is in use, for what comes next.
    spare: *mut Region,
    /// Regions in all.
    len: usize,
}

// SAFETY: regions are owned by their list and touched under its lock.
unsafe impl Send for State {}

/// The header of a region, at its beginning.
pub(crate) struct Region {
    prev: *mut Region,
    next: *mut Region,
    /// Bit `n`: slab `n` is free.
    free: u32,
}

/// A slab, whose bytes are the user's.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// Where it begins: a multiple of [`SLAB_SIZE`].
    pub(crate) start: NonNull<u8>,
    /// What it is a part of.
    pub(super) region: NonNull<Region>,
}

impl Regions {
    pub(crate) const fn new() -> Regions {
        Regions { state: Lock::new(State { partial: ptr::null_mut(), spare: ptr::null_mut(), len: 0 }) }
    }

    /// A slab that nobody uses. What is in it is anything.
    pub(crate) fn take(&self) -> Piece {
        loop {
            let piece = self.state.lock().take();
            match piece {
                Some(piece) => return piece,
                None => self.grow(),
            }
        }
    }

    /// # Safety
    /// From [`Regions::take`], and the caller's to give up.
    pub(crate) unsafe fn give(&self, piece: Piece) {
        // SAFETY: promised by the caller.
        let unused = unsafe { self.state.lock().give(piece) };
        if let Some(region) = unused {
            // SAFETY: allocated with this layout in `grow`; none of its slabs is in use, and it is in no list.
            unsafe { std::alloc::dealloc(region.as_ptr().cast(), LAYOUT) };
        }
    }

    #[cold]
    fn grow(&self) {
        // SAFETY: a region has a size.
        let fresh = unsafe { std::alloc::alloc(LAYOUT) };
        let Some(region) = NonNull::new(fresh.cast::<Region>()) else { handle_alloc_error(LAYOUT) };
        // SAFETY: new, and large enough for its header.
        unsafe { region.write(Region { prev: ptr::null_mut(), next: ptr::null_mut(), free: ALL_FREE }) };
        let mut state = self.state.lock();
        state.len += 1;
        // SAFETY: in no list, and with free slabs.
        unsafe { state.link(region) };
    }

    /// Bytes that are asked for at present, used or not.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().len * LAYOUT.size()
    }
}

impl State {
    fn take(&mut self) -> Option<Piece> {
        if self.partial.is_null()
            && let Some(spare) = NonNull::new(self.spare)
        {
            self.spare = ptr::null_mut();
            // SAFETY: the spare is in no list, and has free slabs.
            unsafe { self.link(spare) };
        }
        let mut region = NonNull::new(self.partial)?;
        // SAFETY: regions in the list are ours, and have free slabs.
        unsafe {
            let header = region.as_mut();
            let at = header.free.trailing_zeros() as usize;
            header.free &= header.free - 1;
            if header.free == 0 {
                self.unlink(region);
            }
            Some(Piece { start: first_slab(region).add(at * SLAB_SIZE), region })
        }
    }

    /// # Safety
    /// As [`Regions::give`]. A region that is returned is the caller's.
    unsafe fn give(&mut self, piece: Piece) -> Option<NonNull<Region>> {
        let mut region = piece.region;
        // SAFETY: promised by the caller; a region is there as long as one of its slabs is in use.
        unsafe {
            let at = (piece.start.addr().get() - first_slab(region).addr().get()) / SLAB_SIZE;
            let header = region.as_mut();
            let was_full = header.free == 0;
            header.free |= 1 << at;
            let unused = header.free == ALL_FREE;
            if was_full {
                self.link(region);
            }
            if !unused {
                return None;
            }
            self.unlink(region);
        }
        if self.spare.is_null() {
            self.spare = region.as_ptr();
            return None;
        }
        self.len -= 1;
        Some(region)
    }

    /// # Safety
    /// The region is ours, and in no list.
    unsafe fn link(&mut self, mut region: NonNull<Region>) {
        // SAFETY: promised by the caller; the head is in the list.
        unsafe {
            region.as_mut().prev = ptr::null_mut();
            region.as_mut().next = self.partial;
            if let Some(head) = self.partial.as_mut() {
                head.prev = region.as_ptr();
            }
        }
        self.partial = region.as_ptr();
    }

    /// # Safety
    /// The region is in the list.
    unsafe fn unlink(&mut self, region: NonNull<Region>) {
        // SAFETY: promised by the caller; neighbors are in the list.
        unsafe {
            let (prev, next) = (region.as_ref().prev, region.as_ref().next);
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

/// Where the slabs of a region begin: behind its header, at a multiple of their size.
fn first_slab(region: NonNull<Region>) -> NonNull<u8> {
    let start: NonNull<u8> = region.cast();
    let past_header = start.addr().get() + size_of::<Region>();
    // SAFETY: within the region, which has the size of a slab to spare (see `LAYOUT`).
    unsafe { start.add(past_header.next_multiple_of(SLAB_SIZE) - start.addr().get()) }
}

/// Sixteen kilobytes: 255 small blocks, 63 large ones.
pub(crate) const SLAB_SIZE: usize = 16 * 1024;

/// Slabs of a region. More of them would cost less (of 256 KiB, the page of the header is 1.6 %) and fall free less often.
const SLABS: usize = 16;

const ALL_FREE: u32 = (1 << SLABS) - 1;

/// The slabs and, wherever the region begins, room for its header and up to the first multiple of a slab's size.
///
/// With what glibc adds, the rest of the size makes up whole pages. Glibc takes from the kernel what is at least as large
/// as what was given back so far, and has an address range of its own for the rest, of which it gives back the end only.
/// If a region were rounded up to pages, the first one that is given back would send all later ones there.
const LAYOUT: Layout = match Layout::from_size_align((SLABS + 1) * SLAB_SIZE + PAGE - 160, REGION_ALIGN) {
    Ok(layout) => layout,
    Err(_) => panic!("some hundred kilobytes are a valid layout"),
};

const PAGE: usize = 4096;

/// Enough for the header to fit in front of the next multiple of a slab's size.
const REGION_ALIGN: usize = 64;

const _: () = assert!(size_of::<Region>() <= REGION_ALIGN, "a header that is longer may not fit in front of the slabs");

#[cfg(test)]
mod tests {
    use super::*;

    /// Static, as the real one, so that what it keeps is not a leak.
    static REGIONS: Regions = Regions::new();

    #[test]
    fn slabs_are_apart_gather_and_fall_free() {
        let region = LAYOUT.size();
        let mut taken: Vec<_> = (0..100).map(|_| REGIONS.take()).collect();
        assert_eq!(REGIONS.bytes(), 7 * region);
        for piece in &taken {
            assert_eq!(piece.start.addr().get() % SLAB_SIZE, 0);
            // SAFETY: ours. Written whole, so that an overlap would destroy a header or a neighbor.
            unsafe { ptr::write_bytes(piece.start.as_ptr(), 0xff, SLAB_SIZE) };
        }
        taken.sort_by_key(|piece| piece.start);
        assert!(taken.windows(2).all(|pair| pair[1].start.addr().get() - pair[0].start.addr().get() >= SLAB_SIZE));
        // Three of four, in an order of which regions know nothing; then as many again as there is room for.
        let mut kept = Vec::new();
        for at in 0..100 {
            let piece = taken[at * 37 % 100];
            if at % 4 == 0 {
                kept.push(piece);
            } else {
                // SAFETY: taken above, and given once.
                unsafe { REGIONS.give(piece) };
            }
        }
        let bytes = REGIONS.bytes();
        kept.extend((0..bytes / region * SLABS - kept.len()).map(|_| REGIONS.take()));
        assert_eq!(REGIONS.bytes(), bytes, "free slabs come before fresh regions");
        for piece in kept.drain(..) {
            // SAFETY: as above.
            unsafe { REGIONS.give(piece) };
        }
        assert_eq!(REGIONS.bytes(), region, "one is kept, the others are given back");
        // What is kept is what is used next, up to its last slab.
        kept.extend((0..SLABS).map(|_| REGIONS.take()));
        assert_eq!(REGIONS.bytes(), region);
        for piece in kept {
            // SAFETY: as above.
            unsafe { REGIONS.give(piece) };
        }
    }
}
