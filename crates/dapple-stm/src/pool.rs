//! The memory of variables: taken from the allocator in chunks, used again, and never given back.
//!
//! So a transaction may remember a variable without holding a reference, and a read writes nothing that other cores
//! read. A variable whose last handle is dropped gets a newer version before it is used again: a transaction that still
//! remembers it finds it changed, and starts over. One that is locked at that moment waits in `limbo`.
//!
//! Rejected: a reference in every read and write. It cost a third of a transfer between two accounts, and transactions
//! that only read got into each other's way.

use std::mem;

use crate::core::{Core, version, word_of};
use crate::shared;
use crate::sync::{CHUNK, lock};
use crate::word::{Shared, Value};

/// What is free, and what is soon.
pub(crate) struct Pool {
    free: Vec<&'static Core>,
    /// Nobody's, but some transaction has it locked.
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
        self.free.pop().expect("there is a chunk of them")
    }
}

/// A variable with this value, and a version that no transaction which has begun takes for granted.
pub(crate) fn take(value: Value) -> &'static Core {
    let core = lock(shared::pool()).take();
    // Nobody owns a free one, and nobody remembers it with its present version.
    let old = core.word();
    core.write(value);
    core.unlock(word_of(version(old).max(shared::clock()) + 1));
    core
}

/// Takes back variables that nobody has a handle of.
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
