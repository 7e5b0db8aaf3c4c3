//! The source of atomics and locks: `std`, or in models loom. Only this file knows which.
//!
//! The driver's protocols (parking, readiness, timers, the ring) use these types, so that the
//! models in `tests/loom/` run the shipped code and not a copy of it. The rest of the crate is not
//! modeled.

#[cfg(dapple_loom)]
mod imp {
    use std::sync::PoisonError;

    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::{MutexGuard, atomic};
    pub(crate) use loom::thread::yield_now;

    /// [`crate::lock::Mutex`] in a model.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// `None` if another thread holds the lock.
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

#[cfg(not(dapple_loom))]
mod imp {
    pub(crate) use std::sync::{MutexGuard, atomic};
    pub(crate) use std::thread::yield_now;

    pub(crate) use crate::lock::Mutex;

    /// An `UnsafeCell` with loom's closure interface, so that loom can see each access.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub(crate) use imp::*;
