//! The current thread's transaction: whether there is one, and the work left after it.

use std::cell::{Cell, RefCell};
use std::iter;
use std::mem;

use crate::core::Core;
use crate::log::Log;
use crate::pool;
use crate::sync::thread_local;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
thread_local! {
    static CURRENT: Current = const { Current::new() };
}

#[cfg(any(dapple_loom, dapple_shuttle))]
thread_local! {
    static CURRENT: Current = Current::new();
}

struct Current {
    running: Cell<bool>,
    /// The log of the last transaction.
    log: Cell<Option<Box<Log>>>,
    /// Variables that lost their last handle in the running transaction, which may have written
    /// them.
    gone: RefCell<Vec<&'static Core>>,
}

impl Current {
    const fn new() -> Current {
        Current { running: Cell::new(false), log: Cell::new(None), gone: RefCell::new(Vec::new()) }
    }
}

/// Begins a transaction on the current thread, and returns its log.
#[inline]
pub(crate) fn begin() -> Box<Log> {
    CURRENT.with(|current| {
        assert!(
            !current.running.replace(true),
            "a transaction was begun inside of a transaction: within `atomically`, call functions that take `&mut Tx`, \
             or `Tx::nested`"
        );
        current.log.take().unwrap_or_default()
    })
}

/// Ends the transaction: later user code is not part of it.
#[inline]
pub(crate) fn end() {
    let gone = CURRENT.with(|current| {
        current.running.set(false);
        let mut gone = current.gone.borrow_mut();
        if gone.is_empty() { Vec::new() } else { mem::take(&mut *gone) }
    });
    if !gone.is_empty() {
        pool::give(gone.into_iter());
    }
}

/// Keeps a cleared log for the next transaction.
#[inline]
pub(crate) fn keep(log: Box<Log>) {
    CURRENT.with(|current| current.log.set(Some(log)));
}

/// Takes back a variable without handles, when no transaction of this thread can have it in its
/// log.
pub(crate) fn give_back(core: &'static Core) {
    // While a thread ends, its thread-locals may have been dropped, but then it has no transaction.
    let deferred = CURRENT.try_with(|current| {
        let running = current.running.get();
        if running {
            current.gone.borrow_mut().push(core);
        }
        running
    });
    if !deferred.unwrap_or(false) {
        pool::give(iter::once(core));
    }
}

/// Panics inside a transaction.
pub(crate) fn assert_outside(what: &str, instead: &str) {
    let inside = CURRENT.try_with(|current| current.running.get()).unwrap_or(false);
    assert!(!inside, "{what} was called inside of a transaction: {instead}");
}
