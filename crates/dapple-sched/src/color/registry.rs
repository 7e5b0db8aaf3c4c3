//! Colors found by value: a sharded map from name to cell.
//!
//! A look-up happens when a handle is made, never at a post (C10: a look-up may share a lock, never
//! while a callback runs). A named color leaves the registry when no handle and no callback is
//! left.
//!
//! Lock order: a home lock, then a shard. `find_or_insert` takes no home lock.

use std::ptr::NonNull;

use crate::color::cell::ColorCell;
use crate::environment::HashMap;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Lock;
use crate::sync::refs;

/// The named colors of a runtime.
pub(crate) struct Registry {
    shards: Box<[Lock<HashMap<u64, Entry>>]>,
}

struct Entry(NonNull<ColorCell>);

// SAFETY: a `ColorCell` is `Sync`, and an entry is only a pointer to it.
unsafe impl Send for Entry {}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry { shards: (0..SHARDS).map(|_| Lock::new(HashMap::default())).collect() }
    }

    /// The cell of `name`, with one more handle; if there is none yet, `make` makes it with its
    /// first handle.
    pub(crate) fn find_or_insert(&self, name: u64, make: impl FnOnce() -> NonNull<ColorCell>) -> NonNull<ColorCell> {
        let mut shard = self.shard(name).lock();
        if let Some(entry) = shard.get(&name) {
            // SAFETY: cells leave the registry, under this lock, before they are freed. Relaxed:
            // the lock orders this step from 0 to 1 against `remove_unused`.
            refs::add(unsafe { &entry.0.as_ref().refs });
            return entry.0;
        }
        let cell = make();
        shard.insert(name, Entry(cell));
        cell
    }

    /// Forgets a named color, unless a thread has just looked it up.
    pub(crate) fn remove_unused(&self, cell: &ColorCell) -> bool {
        let mut shard = self.shard(cell.id).lock();
        // Acquire pairs with the decrements in `Color::drop`.
        let unused = cell.refs.load(Acquire) == 0;
        if unused {
            shard.remove(&cell.id);
        }
        unused
    }

    fn shard(&self, name: u64) -> &Lock<HashMap<u64, Entry>> {
        // Fibonacci hashing: neighboring descriptors go to different shards.
        let mixed = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> (64 - SHARDS.ilog2())) as usize]
    }
}

const SHARDS: usize = 16;
