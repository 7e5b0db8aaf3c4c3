//! The memory of variables: allocated in chunks, reused, and never freed.
//!
//! So a transaction may remember a variable without holding a reference, and a read writes nothing
//! that other cores read. After the drop of its last handle, a variable gets a newer version before
//! it is reused. A transaction that still remembers it finds it changed, and starts over. A
//! variable that is locked at that moment waits in `limbo`.
//!
//! Rejected: a reference in every read and write. It cost a third of a transfer between two
//! accounts, and read-only transactions slowed each other down.

use std::mem;

use crate::core::{Core, version, word_of};
use crate::shared;
use crate::sync::{CHUNK, lock};
use crate::word::{Shared, Value};

/// Free variables, and those that soon will be.
pub(crate) struct Pool {
    free: Vec<&'static Core>,
    /// Variables without handles that a transaction still has locked.
    limbo: Vec<&'static Core>,
}

impl Pool {
    pub(crate) const fn new() -> Pool {
        Pool { free: Vec::new(), limbo: Vec::new() }
    }

    fn take(&mut self) -> &'static Core {
        if self.free.is_empty() {
            let chunk: Vec<Core> = (0..CHUNK).map(|_| Core::new()).collect();
            self.free.extend(chunk.leak().iter());
        }
        self.free.pop().expect("a chunk was just allocated")
    }
}

/// A variable with this value, and a version that no running transaction accepts without a check.
pub(crate) fn take(value: Value) -> &'static Core {
    let core = lock(shared::pool()).take();
    // No transaction owns a free variable, or remembers it with its current version.
    let old = core.word();
    core.write(value);
    core.unlock(word_of(version(old).max(shared::clock()) + 1));
    core
}

/// Takes back variables without handles.
pub(crate) fn give(cores: impl Iterator<Item = &'static Core>) {
    let mut values: Vec<Shared> = Vec::new();
    let mut pool = lock(shared::pool());
    let pool = &mut *pool;
    let mut limbo = mem::take(&mut pool.limbo);
    limbo.extend(cores);
    limbo.retain(|core| match core.try_lock(None) {
        None => true,
        Some(word) => {
            values.extend(core.empty());
            core.unlock(word_of(version(word) + 1));
            pool.free.push(core);
            false
        }
    });
    pool.limbo = limbo;
    // `values` is declared first, so it is dropped last: after the lock.
}
