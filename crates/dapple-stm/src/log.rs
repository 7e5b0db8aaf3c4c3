//! The log of a transaction: an entry for each variable that it has touched.

// REAL: it has a hasher of its own, without keys.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;

use crate::core::Core;
use crate::word::Value;

/// One variable.
pub(crate) struct Entry {
    pub(crate) core: &'static Core,
    /// Its word at the first touch. If there are no writes, the owner (`owned`) restores it.
    pub(crate) word: u64,
    /// The transaction has seen the value: it depends on it, and waits for its change.
    pub(crate) read: bool,
    /// The variable is locked by this transaction.
    pub(crate) owned: bool,
    /// The value to write.
    pub(crate) pending: Option<Value>,
}

/// Reused by later transactions of a thread, to save the allocation.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    /// Entries with a value to write; sorted by address during a commit.
    pub(crate) writes: Vec<u32>,
    /// Earlier pending values that an inner transaction has overwritten, the latest last.
    undo: Vec<(u32, Option<Value>)>,
    /// The number of open inner transactions and alternatives that may be rolled back.
    depth: u32,
    /// Entries by the variables' addresses, if they are too many for a linear search.
    index: HashMap<usize, u32, BuildHasherDefault<AddressHasher>>,
    /// For pauses of different lengths.
    pub(crate) random: u64,
}

/// The point to roll back to.
#[derive(Clone, Copy)]
pub(crate) struct Savepoint(usize);

impl Log {
    /// The entry of a variable.
    #[inline(always)]
    pub(crate) fn find(&self, core: &Core) -> Option<usize> {
        if self.entries.len() <= LOOKED_THROUGH {
            return self.entries.iter().position(|entry| ptr::eq(entry.core, core));
        }
        self.index.get(&address(core)).map(|&index| index as usize)
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, entry: Entry) -> usize {
        let index = self.entries.len();
        self.entries.push(entry);
        if index >= LOOKED_THROUGH {
            self.index_from(if index == LOOKED_THROUGH { 0 } else { index });
        }
        index
    }

    #[cold]
    fn index_from(&mut self, first: usize) {
        for (index, entry) in self.entries.iter().enumerate().skip(first) {
            self.index.insert(address(entry.core), index as u32);
        }
    }

    /// Sets the value that an entry writes.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, value: Value) {
        let entry = &mut self.entries[index];
        let before = entry.pending.replace(value);
        if before.is_none() {
            self.writes.push(index as u32);
        }
        if self.depth > 0 {
            self.undo.push((index as u32, before));
        }
        // Otherwise the previous pending value is dropped here, inside the closure, like any of its
        // values.
    }

    /// Begins a part that may be rolled back.
    pub(crate) fn save(&mut self) -> Savepoint {
        self.depth += 1;
        Savepoint(self.undo.len())
    }

    /// Ends that part, with or without a rollback. Its reads stay, because the outcome depends on
    /// them.
    pub(crate) fn end(&mut self, savepoint: Savepoint, roll_back: bool) {
        self.depth -= 1;
        if roll_back {
            for (index, before) in self.undo.drain(savepoint.0..).rev() {
                if before.is_none() {
                    // Undone in reverse order of the pushes.
                    self.writes.pop();
                }
                self.entries[index as usize].pending = before;
            }
        } else if self.depth == 0 {
            self.undo.clear();
        }
    }

    /// Clears the log; keeps its memory unless that is large.
    pub(crate) fn clear(&mut self) {
        if self.entries.capacity() > KEPT {
            *self = Log { random: self.random, ..Log::default() };
            return;
        }
        self.entries.clear();
        self.writes.clear();
        self.undo.clear();
        self.depth = 0;
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// A number below `limit`.
    pub(crate) fn random_below(&mut self, limit: u32) -> u32 {
        // xorshift64; the seeds only have to differ between threads.
        let mut bits = self.random;
        if bits == 0 {
            bits = ptr::from_ref(self).addr() as u64 | 1;
        }
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.random = bits;
        (((bits >> 32) * u64::from(limit)) >> 32) as u32
    }
}

pub(crate) fn address(core: &Core) -> usize {
    ptr::from_ref(core).addr()
}

/// Hashes an address by a multiplication; addresses differ enough for that.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(usize::from(byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The map uses bits from both ends.
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const LOOKED_THROUGH: usize = 16;
const KEPT: usize = 4096;
