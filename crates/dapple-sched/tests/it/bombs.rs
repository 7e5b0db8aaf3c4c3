//! Foreign code that panics, for the tests of faults in all crates.
#![allow(dead_code, reason = "each crate uses what it needs")]

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use crate::forget::forget;

/// A waker that panics when it is called.
pub(crate) fn bomb() -> Waker {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker of another executor");
        }
    }
    Waker::from(Arc::new(Bomb))
}

/// A waker that panics when its last clone is dropped, even after it was called.
pub(crate) fn drop_bomb() -> Waker {
    /// It has a byte, so that a forgotten waker points into its memory, and not past it.
    struct Nothing(DropBomb, u8);
    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    Waker::from(Arc::new(Nothing(DropBomb, 0)))
}

/// A value that panics when it is dropped.
pub(crate) struct DropBomb;

impl Drop for DropBomb {
    fn drop(&mut self) {
        panic!("a destructor");
    }
}

/// Panics with a payload that panics when it is dropped.
pub(crate) fn panic_twice() -> ! {
    panic_any(DropBomb)
}

/// Runs `run`, which must panic with one of these values; the caller gets that panic's payload.
pub(crate) fn blast(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).map_err(forget).is_err()
}

/// A waker that counts how often it was called.
pub(crate) fn counting() -> (Arc<Calls>, Waker) {
    let calls = Arc::new(Calls::default());
    (calls.clone(), Waker::from(calls))
}

/// See [`counting`].
#[derive(Default)]
pub(crate) struct Calls(AtomicUsize);

impl Calls {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
