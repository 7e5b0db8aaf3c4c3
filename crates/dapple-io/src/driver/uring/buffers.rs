//! The registered buffers of one ring: whole regions, each in one place of the ring's table.
//!
//! A region is registered with a ring at its first use there. It is removed when it is freed, which
//! is when no buffer of it is left, and so none in flight. If the kernel refuses (its limit on
//! locked memory), the same memory is used unregistered.

use super::kernel::Kernel;
use crate::fs::Region;

/// See the module's text.
#[derive(Default)]
pub(super) struct Table {
    /// Identities of the regions, 0 for a free place.
    places: Vec<u64>,
    is_made: bool,
    /// Whether the kernel has no such table (before Linux 5.19).
    is_refused: bool,
    /// Regions that did not fit, so that not every call tries again.
    refused: Vec<u64>,
}

/// The result of looking for a region.
pub(super) enum RegionLookup {
    Old(u16),
    /// A new place, to be noted in the region, so that the region is removed later.
    New(u16),
    None,
}

impl Table {
    /// The place of a region; registers it if it has none.
    pub(super) fn place(&mut self, kernel: &Kernel, region: &Region) -> RegionLookup {
        let id = region.id();
        if let Some(index) = self.places.iter().position(|place| *place == id) {
            return RegionLookup::Old(index as u16);
        }
        if self.is_refused || self.refused.contains(&id) {
            return RegionLookup::None;
        }
        match self.register(kernel, region) {
            Some(index) => RegionLookup::New(index),
            None => {
                if !self.is_refused {
                    self.refused.push(id);
                }
                tracing::warn!(
                    bytes = region.len(),
                    "the kernel does not register these buffers: they are used as plain memory; raise the limit on \
                     locked memory (ulimit -l)"
                );
                RegionLookup::None
            }
        }
    }

    fn register(&mut self, kernel: &Kernel, region: &Region) -> Option<u16> {
        if !self.is_made {
            self.is_made = kernel.make_table(PLACES);
            self.is_refused = !self.is_made;
            self.places = vec![0; usize::from(PLACES)];
        }
        let index = self.places.iter().position(|place| *place == 0)?;
        if !self.is_made || !update(kernel, index, region.iovec()) {
            return None;
        }
        self.places[index] = region.id();
        Some(index as u16)
    }

    /// Removes a region.
    pub(super) fn forget(&mut self, kernel: &Kernel, region: &Region) {
        let id = region.id();
        self.refused.retain(|refused| *refused != id);
        if let Some(index) = self.places.iter().position(|place| *place == id) {
            self.places[index] = 0;
            let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            update(kernel, index, none);
        }
    }
}

fn update(kernel: &Kernel, index: usize, iovec: libc::iovec) -> bool {
    // SAFETY: the iovec covers a whole region, which is removed from the table before its memory is
    // freed (`Region::drop`), or is empty. No other part of the program has a place in the table.
    unsafe { kernel.set_place(index, iovec) }
}

/// The most regions registered with one ring; further ones are used as plain memory.
const PLACES: u16 = 64;
