//! A state's value, with a count of the closures that borrow it, as `RefCell` counts.
//!
//! Only the thread that holds the state's color for writing touches the count: an atomic which
//! needs no order. Readers that hold the color for reading are not counted: meanwhile no thread
//! holds it for writing, and so no thread can write the state.
//!
//! | count | closures inside | next |
//! |---|---|---|
//! | 0 | none, or readers that hold the color for reading | -1 (a writer enters), 1 (a reader enters) |
//! | -1 | one writer | 0 (it ends) |
//! | n > 0 | n readers, on the thread that holds the color for writing | n + 1, n - 1 |

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
// Not the atomics of the models: those check the value, and the color that guards value and count.
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use crate::sync::UnsafeCell;

/// See the table.
pub(super) struct Lent<T> {
    closures: AtomicIsize,
    /// Touched while the color is held.
    value: UnsafeCell<ManuallyDrop<T>>,
}

/// A writing closure is inside.
pub struct Writer<'a, T> {
    lent: &'a Lent<T>,
    value: *mut T,
}

/// A reading closure is inside.
pub struct Reader<'a, T> {
    lent: &'a Lent<T>,
    value: *const T,
    /// Whether it is counted.
    counts: bool,
}

impl<T> Lent<T> {
    pub(super) fn new(value: T) -> Lent<T> {
        Lent { closures: AtomicIsize::new(0), value: UnsafeCell::new(ManuallyDrop::new(value)) }
    }

    /// Adds to the count. Relaxed, here and below: it orders nothing, and one thread at a time
    /// touches it.
    #[inline]
    fn count(&self, by: isize) {
        self.closures.store(self.closures.load(Relaxed) + by, Relaxed);
    }

    /// Lets a writing closure enter, unless another closure is inside.
    ///
    /// # Safety
    /// The caller holds the state's color for writing until the writer is dropped.
    #[inline]
    pub(super) unsafe fn write(&self) -> Option<Writer<'_, T>> {
        let free = self.closures.load(Relaxed) == 0;
        free.then(|| {
            self.count(-1);
            Writer { lent: self, value: self.value.with_mut(|value| value).cast() }
        })
    }

    /// Lets a reading closure enter, unless a writing one is inside.
    ///
    /// # Safety
    /// The caller holds the state's color until the reader is dropped; only for reading, unless it
    /// `counts`.
    pub(super) unsafe fn read(&self, counts: bool) -> Option<Reader<'_, T>> {
        let enters = !counts || self.closures.load(Relaxed) >= 0;
        enters.then(|| {
            if counts {
                // The stack has no room for as many closures as an `isize` counts.
                self.count(1);
            }
            Reader { lent: self, value: self.value.with(|value| value).cast(), counts }
        })
    }

    /// The value, for the last handle to drop.
    ///
    /// # Safety
    /// Called once, and last.
    pub(super) unsafe fn take(&mut self) -> T {
        // SAFETY: promised by the caller.
        self.value.with_mut(|value| unsafe { ManuallyDrop::take(&mut *value) })
    }
}

impl<T> Deref for Writer<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no other closure is inside, and the color is held.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for Writer<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value }
    }
}

impl<T> Drop for Writer<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The color is still held, as promised to `write`.
        self.lent.count(1);
    }
}

impl<T> Deref for Reader<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a writing closure holds the color for writing; if this thread holds it for
        // writing, too, that closure finds the count.
        unsafe { &*self.value }
    }
}

impl<T> Drop for Reader<'_, T> {
    fn drop(&mut self) {
        if self.counts {
            // The color is still held, as promised to `read`.
            self.lent.count(-1);
        }
    }
}
