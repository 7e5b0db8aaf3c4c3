//! Foreign code that panics.

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// So many kinds of wakers there are that panic: when they are woken, cloned, or dropped.
pub(crate) const KINDS: usize = 3;

/// A waker that panics; never dropped itself, unlike its clones.
pub(crate) fn waker(kind: usize) -> ManuallyDrop<Waker> {
    // SAFETY: the table's functions take the pointer for a number, so that every thread may call them at any time.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(kind)) })
}

/// Not `panic!`, whose hook would print.
pub(crate) fn explode() {
    std::panic::resume_unwind(Box::new("as the program says"));
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
