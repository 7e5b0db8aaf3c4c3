//! The state that a request's body and its reply share.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    fault: AtomicU8,
    is_read: AtomicBool,
    has_reply: AtomicBool,
}

/// The limit that a body exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    TooLarge = 1,
    TooSlow = 2,
}

impl Exchange {
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Fault::TooLarge),
            _ => Some(Fault::TooSlow),
        }
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    /// Whether the whole body has been read.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    pub(super) fn set_read(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Whether the reply has begun: the rest is a dialogue of unknown length, in which a client may
    /// pause.
    pub(super) fn has_reply(&self) -> bool {
        self.has_reply.load(Ordering::Relaxed)
    }

    pub(super) fn reply(&self) {
        self.has_reply.store(true, Ordering::Relaxed);
    }
}
