//! A variable in memory: the word that governs access to it, its value, and its waiters.
//!
//! # States of the word
//!
//! | bits | meaning | left by, to |
//! |---|---|---|
//! | `version` | the value may be read | a commit or the serial path: `+ LOCKED`; a waiter: `+ WAITED` |
//! | `version + WAITED` | the same, and `waiters` may not be empty | a commit or the serial path: `+ LOCKED` |
//! | `version (+ WAITED) + LOCKED` | a commit owns it; the value may be changing | the owner: `newer version`, or the previous word |
//! | `version (+ WAITED) + LOCKED + KEPT` | a transaction on the serial path owns it while its code runs; the value stays | the owner: without `KEPT`, when it commits; or the previous word |
//!
//! Versions of one variable only grow, and each committed write has its own. Only the owner changes
//! a locked word. So an owner unlocks with a plain store, and knows from the word that it locked
//! whether there are waiters.
//!
//! # Orderings
//!
//! | access | order | pairs with |
//! |---|---|---|
//! | lock (`try_lock`) | `SeqCst` exchange | the loads of the word in `read` and `unchanged`, and the clock: if a commit reads the clock below a mark, every transaction that begins above the mark sees its locks |
//! | store of `bits` | release | the acquire load of `bits`: a reader of a value sees the lock under which it was written |
//! | `KEPT` taken off (`begin_change`) | release | the acquire load of a value written after it: a reader that finds that value under `KEPT` does not see the bit at its next check (`read_committed`). And through the `unlock` of any variable of the same commit: a reader of one new value finds `KEPT` on none |
//! | `unlock` | release | the `SeqCst` (so acquire) loads of the word: a reader of a version sees its value |
//! | second load in `read` | `SeqCst` | the lock: a value newer than its word belongs to a commit that has passed its checks, so no state is torn, but the attempt would fail later |
//! | `WAITED` set (`add_waiter`) | acquire-release exchange | the lock exchange on the same word: either the waiter sees the change, or the writer sees the waiter |
//!
//! `shared` and `waiters` have their own locks, held for a few instructions, never while user code
//! runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::signal::Signal;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::sync::{LOOKS, Mutex, give_way, lock, pause};
use crate::word::{Shared, Value};

/// A variable in memory. Lives as long as the process, see `pool`.
#[cfg_attr(not(any(dapple_loom, dapple_shuttle)), repr(align(64)))]
pub(crate) struct Core {
    word: AtomicU64,
    /// The value, if it fits.
    bits: AtomicU64,
    /// The value, if it does not fit.
    shared: Mutex<Option<Shared>>,
    /// In the order of arrival. `None` needs no allocation.
    waiters: Mutex<Option<Box<Waiters>>>,
}

type Waiters = BTreeMap<u64, Arc<Signal>>;

impl Core {
    pub(crate) fn new() -> Core {
        Core { word: AtomicU64::new(0), bits: AtomicU64::new(0), shared: Mutex::new(None), waiters: Mutex::new(None) }
    }

    /// A value and the word under which it was current; `None` if it stayed locked or kept
    /// changing.
    #[inline(always)]
    pub(crate) fn read(&self, in_word: bool) -> Option<(Value, u64)> {
        for look in 0..=LOOKS {
            let word = self.word.load(SeqCst);
            if word & LOCKED == 0 {
                let value = self.value(in_word);
                if self.unchanged(word) {
                    return Some((value, word));
                }
            }
            pause(look.min(16));
        }
        None
    }

    /// The value, under any owner. It may not match the version unless the caller owns the variable
    /// or checks the word again.
    #[inline(always)]
    pub(crate) fn value(&self, in_word: bool) -> Value {
        if in_word {
            return Value::Word(self.bits.load(Acquire));
        }
        Value::Shared(lock(&self.shared).clone().expect("a variable that is in use has a value"))
    }

    /// The committed value. Does not wait for code of the program: until a transaction commits,
    /// this is the value before it.
    pub(crate) fn read_committed(&self, in_word: bool) -> Value {
        loop {
            for look in 0..=LOOKS {
                let word = self.word.load(SeqCst);
                if word & LOCKED == 0 || word & KEPT != 0 {
                    let value = self.value(in_word);
                    if self.unchanged(word) {
                        return value;
                    }
                }
                pause(look.min(16));
            }
            // A commit is writing, which takes some instructions unless its thread was preempted.
            give_way();
        }
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word.load(SeqCst)
    }

    /// Whether a value read under this word is current, and no transaction is about to change it.
    #[inline(always)]
    pub(crate) fn unchanged(&self, word: u64) -> bool {
        (self.word.load(SeqCst) ^ word) & !WAITED == 0
    }

    /// Locks the variable if it is unlocked and has the given version, if any. Returns the previous
    /// word.
    #[inline(always)]
    pub(crate) fn try_lock(&self, expected: Option<u64>) -> Option<u64> {
        self.try_lock_as(LOCKED, expected)
    }

    /// Locks the variable if it is unlocked, for a transaction with running code. Returns the
    /// previous word.
    pub(crate) fn try_keep(&self) -> Option<u64> {
        self.try_lock_as(LOCKED | KEPT, None)
    }

    /// For the owner, which keeps the variable and found this word: its value is about to change.
    pub(crate) fn begin_change(&self, word: u64) {
        self.word.store(word | LOCKED, Release);
    }

    #[inline(always)]
    fn try_lock_as(&self, bits: u64, expected: Option<u64>) -> Option<u64> {
        let mut word = expected.unwrap_or_else(|| self.word.load(Relaxed));
        loop {
            if word & LOCKED != 0 || expected.is_some_and(|expected| (expected ^ word) & !WAITED != 0) {
                return None;
            }
            match self.word.compare_exchange(word, word | bits, SeqCst, Relaxed) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
    }

    /// For the owner. Returns the previous value, because dropping it is user code.
    #[inline(always)]
    pub(crate) fn write(&self, value: Value) -> Option<Shared> {
        match value {
            Value::Word(word) => {
                self.bits.store(word, Release);
                None
            }
            Value::Shared(shared) => lock(&self.shared).replace(shared),
        }
    }

    /// For the owner: takes the value out of a variable without handles.
    pub(crate) fn empty(&self) -> Option<Shared> {
        lock(&self.shared).take()
    }

    /// For the owner.
    #[inline(always)]
    pub(crate) fn unlock(&self, word: u64) {
        self.word.store(word, Release);
    }

    /// Adds a waiter unless the variable has changed since it was read under this word.
    pub(crate) fn add_waiter(&self, word: u64, id: u64, signal: &Arc<Signal>) -> bool {
        let mut waiters = lock(&self.waiters);
        let mut now = self.word.load(Relaxed);
        loop {
            if (now ^ word) & !WAITED != 0 {
                return false;
            }
            // Also if the bit is set: a writer may have seen it, and be about to clear it.
            match self.word.compare_exchange(now, now | WAITED, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        waiters.get_or_insert_default().insert(id, signal.clone());
        true
    }

    /// Removes a waiter, and the list with the last one.
    pub(crate) fn remove_waiter(&self, id: u64) {
        let mut waiters = lock(&self.waiters);
        if let Some(list) = waiters.as_deref_mut() {
            list.remove(&id);
            if list.is_empty() {
                *waiters = None;
            }
        }
    }

    /// Takes all waiters, after an unlock of a word that had `WAITED`.
    pub(crate) fn take_waiters(&self) -> impl Iterator<Item = Arc<Signal>> + use<> {
        let list = lock(&self.waiters).take();
        list.into_iter().flat_map(|list| list.into_values())
    }

    pub(crate) fn waiter_count(&self) -> usize {
        lock(&self.waiters).as_ref().map_or(0, |list| list.len())
    }
}

/// The version in a word.
#[inline(always)]
pub(crate) fn version(word: u64) -> u64 {
    word >> VERSION_SHIFT
}

/// The word of an unlocked variable of this version without waiters.
#[inline(always)]
pub(crate) fn word_of(version: u64) -> u64 {
    version << VERSION_SHIFT
}

pub(crate) const LOCKED: u64 = 1;
pub(crate) const WAITED: u64 = 2;
const KEPT: u64 = 4;
const VERSION_SHIFT: u32 = 3;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_variable_fills_a_line() {
        assert_eq!((size_of::<Core>(), align_of::<Core>()), (64, 64));
    }
}
