//! The side record of a color, for the fields that few colors need: made on demand, freed with the
//! color.
//!
//! A color has two cache lines. Fields that the callbacks of most colors do not touch are here
//! instead.

use std::ptr;

use crate::observe::stats::Times;
use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use crate::task::LastSide;

/// A color's side record, or none yet. If its lowest bit, [`LIMITED`], is set, the color has a
/// record and a capacity. So a post to a color without capacity only reads that bit.
pub(crate) struct ExtPtr(AtomicPtr<Ext>);

/// The fields of a color beyond its two cache lines.
pub(crate) struct Ext {
    /// The most that `try_post` accepts; [`NO_CAPACITY`] for no limit.
    capacity: AtomicU32,
    /// Callbacks accepted and not yet run, counted only while there is a capacity.
    counted: AtomicU32,
    /// The overflow of the color's count of steals.
    stolen: AtomicU64,
    /// Waits dropped while queued in the color, since the last sweep.
    dropped_waits: AtomicU32,
    /// The number of the color's label, or 0.
    label: AtomicU32,
    /// Kept while times are measured.
    pub(crate) times: Times,
    /// The data that tasks spawned in the color share.
    pub(crate) last_side: LastSide,
}

impl ExtPtr {
    pub(crate) fn new() -> ExtPtr {
        ExtPtr(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether the color has a capacity.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        // Relaxed: a thread that must see the capacity learned of it through another ordered
        // access.
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
            // Release: a thread that acquires the new value also sees the record.
            match self.0.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// The record, if the color has one.
    pub(crate) fn get(&self) -> Option<&Ext> {
        // Acquire pairs with the exchanges in `get_or_make` and `set_capacity`.
        let ext = without_bit(self.0.load(Acquire));
        // SAFETY: made from a box in `get_or_make`, and freed with `self` only.
        unsafe { ext.as_ref() }
    }

    /// The number of the color's label, or 0.
    pub(crate) fn label(&self) -> u32 {
        self.get().map_or(0, Ext::label)
    }

    /// The record; made if the color has none.
    pub(crate) fn get_or_make(&self) -> &Ext {
        if let Some(ext) = self.get() {
            return ext;
        }
        let made = Box::into_raw(Box::new(Ext::new()));
        // Release pairs with the load in `get`; Acquire pairs with the thread that came first.
        match self.0.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            // SAFETY: as in `get`.
            Ok(_) => unsafe { &*made },
            Err(first) => {
                // SAFETY: the exchange failed, so the box is ours; the other one as in `get`.
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
        // Relaxed: `&mut self` orders this after all other accesses.
        let ext = without_bit(self.0.load(Relaxed));
        if !ext.is_null() {
            // SAFETY: made from a box, and no other thread can reach it any more.
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
            label: AtomicU32::new(0),
            times: Times::default(),
            last_side: LastSide::new(),
        }
    }

    pub(super) fn set_label(&self, label: u32) {
        // Relaxed: for statistics.
        self.label.store(label, Relaxed);
    }

    /// The number of the label, or 0.
    pub(crate) fn label(&self) -> u32 {
        // Relaxed: as there.
        self.label.load(Relaxed)
    }

    /// Counts one more callback, whatever the capacity; false if there is no capacity.
    pub(crate) fn count(&self) -> bool {
        // Relaxed here and below: numbers that guard nothing.
        let limited = self.capacity.load(Relaxed) != NO_CAPACITY;
        if limited {
            self.counted.fetch_add(1, Relaxed);
        }
        limited
    }

    /// Counts one more callback if the capacity allows it; `Some(false)` if there is no capacity,
    /// `None` if it is full.
    pub(super) fn try_count(&self) -> Option<bool> {
        // Relaxed: the one counter decides which post exceeds the capacity; it guards nothing else.
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

    /// Counts a dropped wait in the color, in which `queued` nodes wait. True after so many drops
    /// that the caller must sweep the dropped waits; the count starts again.
    pub(crate) fn count_dropped_wait(&self, queued: u64) -> bool {
        // Relaxed: it only decides when to sweep.
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

/// The least number of dropped waits that starts a sweep. (Models have few waits, and are to sweep
/// them.)
const SWEEP_AT: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 2 } else { 64 };

/// Says that a color has no capacity.
const NO_CAPACITY: u32 = u32::MAX;
