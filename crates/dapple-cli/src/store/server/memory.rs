//! The memory that all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A sum of bytes with a limit: unfinished requests, replies, and messages that wait for subscribers.
pub(super) struct Memory {
    used: AtomicUsize,
    max: usize,
}

/// Bytes that count against the limit until this is dropped.
pub(super) struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

/// Fewer bytes of one connection are never refused: the number of connections bounds them.
pub(super) const SMALL: usize = 16 << 10;

impl Memory {
    pub(super) fn new(max: usize) -> Arc<Memory> {
        Arc::new(Memory { used: AtomicUsize::new(0), max })
    }

    /// The bytes that count now.
    pub(super) fn used(&self) -> usize {
        // Relaxed here and below: a sum; no other memory depends on it.
        self.used.load(Ordering::Relaxed)
    }

    /// Counts these bytes; `false` if that is more than the limit.
    pub(super) fn add(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.max
    }

    /// Counts these bytes no longer.
    pub(super) fn remove(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    /// A share of no bytes.
    pub(super) fn new(memory: &Arc<Memory>) -> Share {
        Share { memory: memory.clone(), bytes: 0 }
    }

    /// Counts `len` bytes from now on; `false` if all connections together have too many.
    pub(super) fn set(&mut self, len: usize) -> bool {
        let bytes = if len > SMALL { len } else { 0 };
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes == before {
            return true;
        }
        self.memory.remove(before);
        self.memory.add(bytes) || bytes == 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.remove(self.bytes);
    }
}
