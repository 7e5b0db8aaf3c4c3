//! Wakers that panic when they are woken, cloned, or dropped.

use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::nested::explode;

/// A waker that panics; `kind` is below [`crate::nested::BOMBS`].
pub(crate) fn waker(kind: usize) -> Waker {
    // SAFETY: the table's functions take the pointer as a number, so every thread may call them at
    // any time.
    unsafe { Waker::from_raw(raw(kind)) }
}

fn raw(kind: usize) -> RawWaker {
    RawWaker::new(ptr::without_provenance(kind), &TABLE)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

fn clone(kind: *const ()) -> RawWaker {
    if kind.addr() == 1 {
        explode();
    }
    raw(kind.addr())
}

fn wake(kind: *const ()) {
    if kind.addr() == 0 {
        explode();
    }
}

fn drop(kind: *const ()) {
    if kind.addr() == 2 {
        explode();
    }
}
