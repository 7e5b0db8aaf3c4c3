//! The runtimes that a thread has entered, and the guards that keep them current.
//!
//! Each guard owns an entry of a list that begins in the thread's context. A program may drop
//! guards in any order, and a forgotten one leaves its entry behind; so entries are on the heap,
//! and hold the runtime themselves.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::runtime::context;
use crate::runtime::shared::Shared;

/// Keeps a runtime current on this thread; see [`Handle::enter`](crate::Handle::enter). The newest
/// of the remaining guards decides, in whatever order guards are dropped.
///
/// ```
/// use dapple_sched::{Color, Handle, Runtime};
///
/// let (one, two) = (Runtime::builder().workers(1).build()?, Runtime::builder().workers(2).build()?);
/// let entered = two.enter();
/// assert_eq!(Handle::current().workers(), 2);
/// let color = Color::new(); // of `two`, wherever it is used
/// drop(entered);
/// # let _ = (one, color);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the runtime is current until the guard is dropped"]
pub struct EnterGuard {
    entry: NonNull<Entry>,
    not_send: PhantomData<*const ()>,
}

/// A runtime that this thread has entered.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    /// The next older remaining entry; null if there is none.
    older: Cell<*mut Entry>,
}

/// The runtime that this thread entered last, out of those of this process.
pub(super) fn newest() -> Option<Arc<Shared>> {
    // SAFETY: entries in this thread's list are alive, and only this thread changes the list.
    let older = |entry: *mut Entry| unsafe { entry.as_ref() };
    let mut entries = std::iter::successors(older(context::entered()), |entry| older(entry.older.get()));
    entries.find(|entry| !entry.shared.is_left_behind()).map(|entry| entry.shared.clone())
}

impl EnterGuard {
    pub(crate) fn new(shared: Arc<Shared>) -> EnterGuard {
        let entry = Box::into_raw(Box::new(Entry { shared, older: Cell::new(context::entered()) }));
        context::set_entered(entry);
        // SAFETY: a box is not null.
        EnterGuard { entry: unsafe { NonNull::new_unchecked(entry) }, not_send: PhantomData }
    }
}

impl Drop for EnterGuard {
    fn drop(&mut self) {
        // SAFETY: the guard and its entry belong to this thread; its list ends in null. Entries
        // are freed only here, once they have left the list.
        let entry = unsafe {
            let older = self.entry.as_ref().older.get();
            if context::entered() == self.entry.as_ptr() {
                context::set_entered(older);
            } else {
                let mut newer = context::entered();
                while (*newer).older.get() != self.entry.as_ptr() {
                    newer = (*newer).older.get();
                }
                (*newer).older.set(older);
            }
            Box::from_raw(self.entry.as_ptr())
        };
        // This may end the runtime, so it comes after the list is consistent again.
        drop(entry);
    }
}

impl fmt::Debug for EnterGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnterGuard")
    }
}
