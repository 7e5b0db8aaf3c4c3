//! How closures have borrowed a state: counted as `RefCell` counts.
//!
//! The count is touched only by the one thread that holds the state's color for writing, so it needs no atomics.
//! Readers that hold the color for reading leave no mark: as long as they do, no thread holds it for writing, and so no
//! thread can write the state.
//!
//! | count | closures inside | next |
//! |---|---|---|
//! | 0 | none, or readers that hold the color for reading | -1 (a writer enters), 1 (a reader enters) |
//! | -1 | one that writes | 0 (it ends) |
//! | n > 0 | n that read, on the thread that holds the color for writing | n + 1, n - 1 |

use std::cell::Cell;

use crate::sync::UnsafeCell;

/// See the table. All methods: the caller holds the state's color for writing.
pub(crate) struct Borrows(UnsafeCell<Cell<isize>>);

impl Borrows {
    pub(super) fn none() -> Borrows {
        Borrows(UnsafeCell::new(Cell::new(0)))
    }

    /// # Safety
    /// The caller holds the state's color for writing.
    #[inline]
    unsafe fn count<R>(&self, f: impl FnOnce(&Cell<isize>) -> R) -> R {
        // SAFETY: promised by the caller; no other thread touches the cell.
        self.0.with_mut(|count| f(unsafe { &*count }))
    }

    /// Whether a closure is inside, if only to read.
    ///
    /// # Safety
    /// The caller holds the state's color for writing.
    #[inline]
    pub(crate) unsafe fn any(&self) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.count(|count| count.get() != 0) }
    }

    /// Whether a closure is inside that writes.
    ///
    /// # Safety
    /// The caller holds the state's color for writing.
    #[inline]
    pub(super) unsafe fn written(&self) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.count(|count| count.get() < 0) }
    }

    /// A closure that writes enters.
    ///
    /// # Safety
    /// The caller holds the state's color for writing, and [`Borrows::any`] is false.
    #[inline]
    pub(super) unsafe fn enter_to_write(&self) {
        // SAFETY: promised by the caller.
        unsafe { self.count(|count| count.set(-1)) }
    }

    /// It ends.
    ///
    /// # Safety
    /// The caller holds the state's color for writing, and its closure writes.
    #[inline]
    pub(super) unsafe fn end_writing(&self) {
        // SAFETY: promised by the caller.
        unsafe { self.count(|count| count.set(0)) }
    }

    /// A closure that reads enters.
    ///
    /// # Safety
    /// The caller holds the state's color for writing, and [`Borrows::written`] is false.
    pub(super) unsafe fn enter_to_read(&self) {
        // SAFETY: promised by the caller. The frames of as many closures as an `isize` counts fit into no stack.
        unsafe { self.count(|count| count.set(count.get() + 1)) }
    }

    /// It ends.
    ///
    /// # Safety
    /// The caller holds the state's color for writing, and one of the closures that read is its own.
    pub(super) unsafe fn end_reading(&self) {
        // SAFETY: promised by the caller.
        unsafe { self.count(|count| count.set(count.get() - 1)) }
    }
}
