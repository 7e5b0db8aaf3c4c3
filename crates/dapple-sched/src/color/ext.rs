//! The part of a color that few colors need: made when it is first asked for, freed with the color.
//!
//! A color has two cache lines. What is not touched by every callback of most colors stands here instead.

use std::ptr;

use crate::observe::stats::Times;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use crate::task::LastSide;

/// A color's side record, or none yet. The lowest bit, [`LIMITED`], says that there is one and that the color has a
/// capacity, so that a post to a color without one is done with it after a look at the bit.
pub(crate) struct ExtPtr(AtomicPtr<Ext>);

/// What a color has beyond its two cache lines.
pub(crate) struct Ext {
    /// The most that `try_post` accepts; [`NO_CAPACITY`] for no limit.
    capacity: AtomicU32,
    /// Accepted and not yet run, counted only while there is a capacity.
    counted: AtomicU32,
    /// Of how often the color was stolen, what does not fit elsewhere.
    stolen: AtomicU64,
    /// Waits that were dropped while they stood in the color, since it was last swept.
    dropped_waits: AtomicU32,
    /// Kept while times are measured.
    pub(crate) times: Times,
    /// What the tasks have in common that were spawned in the color.
    pub(crate) last_side: LastSide,
}

impl ExtPtr {
    pub(crate) fn new() -> ExtPtr {
        ExtPtr(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether the color has a capacity.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        // Relaxed: who must see the capacity has heard of it in a way that orders.
        self.0.load(Relaxed).addr() & LIMITED != 0
    }

    /// Sets the most that `try_post` accepts; `None` for no limit.
    pub(super) fn set_capacity(&self, capacity: Option<u32>) {
        let capacity = capacity.map_or(NO_CAPACITY, |capacity| capacity.min(NO_CAPACITY - 1));
        // Relaxed: as in `is_limited`; the exchange below decides about the pointer.
        self.get_or_make().capacity.store(capacity, Relaxed);
        let mut old = self.0.load(Relaxed);
        loop {
            let bit = if capacity == NO_CAPACITY { 0 } else { LIMITED };
            let new = old.map_addr(|addr| addr & !LIMITED | bit);
            // Release: whoever acquires the new value sees the record, too.
            match self.0.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// The record, if there is one.
    pub(crate) fn get(&self) -> Option<&Ext> {
        // Acquire pairs with the exchanges in `get_or_make` and `set_capacity`.
        let ext = without_bit(self.0.load(Acquire));
        // SAFETY: made from a box in `get_or_make`, and freed with `self` only.
        unsafe { ext.as_ref() }
    }

    /// The record, which is made where there is none.
    pub(crate) fn get_or_make(&self) -> &Ext {
        if let Some(ext) = self.get() {
            return ext;
        }
        let made = Box::into_raw(Box::new(Ext::new()));
        // Release pairs with the load in `get`; so does Acquire, with the one who came first.
        match self.0.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            // SAFETY: as in `get`.
            Ok(_) => unsafe { &*made },
            Err(first) => {
                // SAFETY: ours, as the exchange failed; the other as in `get`.
                unsafe {
                    drop(Box::from_raw(made));
                    &*without_bit(first)
                }
            }
        }
    }
}

impl Drop for ExtPtr {
    fn drop(&mut self) {
        // Relaxed: `&mut self` is ordered after all else.
        let ext = without_bit(self.0.load(Relaxed));
        if !ext.is_null() {
            // SAFETY: from a box, and nobody else has a way to it any more.
            drop(unsafe { Box::from_raw(ext) });
        }
    }
}

impl Ext {
    fn new() -> Ext {
        Ext {
            capacity: AtomicU32::new(NO_CAPACITY),
            counted: AtomicU32::new(0),
            stolen: AtomicU64::new(0),
            dropped_waits: AtomicU32::new(0),
            times: Times::default(),
            last_side: LastSide::new(),
        }
    }

    /// Counts one callback more, whatever the capacity; false where there is none.
    pub(crate) fn count(&self) -> bool {
        // Relaxed here and below: numbers that guard nothing.
        let limited = self.capacity.load(Relaxed) != NO_CAPACITY;
        if limited {
            self.counted.fetch_add(1, Relaxed);
        }
        limited
    }

    /// Counts one callback more if the capacity allows it; `Some(false)` where there is none, `None` if it is full.
    pub(super) fn try_count(&self) -> Option<bool> {
        // Relaxed: one count decides who is over the capacity; it guards nothing else.
        let capacity = self.capacity.load(Relaxed);
        if capacity == NO_CAPACITY {
            return Some(false);
        }
        if self.counted.fetch_add(1, Relaxed) >= capacity {
            self.counted.fetch_sub(1, Relaxed);
            return None;
        }
        Some(true)
    }

    /// A wait was dropped that stands in the color, where so many wait. True: there are so many such waits now that they
    /// are to be taken out, and the count begins anew.
    pub(crate) fn count_dropped_wait(&self, queued: u64) -> bool {
        // Relaxed: it decides when to sweep, and nothing else.
        let dropped = self.dropped_waits.fetch_add(1, Relaxed) + 1;
        let due = dropped >= SWEEP_AT && u64::from(dropped) * 2 >= queued;
        if due {
            self.dropped_waits.store(0, Relaxed);
        }
        due
    }

    pub(super) fn add_stolen(&self, times: u64) {
        // Relaxed: a number to show.
        self.stolen.fetch_add(times, Relaxed);
    }

    pub(crate) fn stolen(&self) -> u64 {
        // Relaxed: as there.
        self.stolen.load(Relaxed)
    }

    /// A counted callback runs or is dropped.
    pub(crate) fn count_off(&self) {
        // Relaxed: as in `try_count`.
        self.counted.fetch_sub(1, Relaxed);
    }
}

fn without_bit(ext: *mut Ext) -> *mut Ext {
    ext.map_addr(|addr| addr & !LIMITED)
}

/// The bit in the pointer; records are 8-aligned.
const LIMITED: usize = 1;

/// So many dropped waits may stand in a color at least. (In models few do, and they are to be swept.)
const SWEEP_AT: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 2 } else { 64 };

/// Says that a color has no capacity.
const NO_CAPACITY: u32 = u32::MAX;
