//! The means by which threads synchronize: atomics, the spin lock (`lock`), the lock with an owner
//! (`lock/owned.rs`), the barrier, reference counts. Only this file knows whether atomics come from
//! `std`, from loom or from shuttle.
//!
//! Below all other modules. Imports from above only the trait of a driver and the token of the
//! current thread, both for the lock with an owner. Begin with `lock`.
//!
//! All lock-free code of this crate takes its atomics, cells and thread-locals from here, so that
//! the models in `tests/loom/` and `tests/shuttle/` run the shipped code and not a copy of it.

pub(crate) mod barrier;
pub(crate) mod lock;
pub(crate) mod refs;

#[cfg(dapple_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic;
    pub(crate) use loom::thread::{Thread, current, park, yield_now};
    pub(crate) use loom::thread_local;
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }
}

#[cfg(not(dapple_loom))]
mod cell {
    /// An `UnsafeCell` with loom's closure interface, so that loom can see each access.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(dapple_shuttle)]
mod imp {
    pub(crate) use super::cell::UnsafeCell;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread::{Thread, current, park, yield_now};
    pub(crate) use shuttle::thread_local;
    pub(crate) fn spin_loop() {
        shuttle::hint::spin_loop();
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod imp {
    pub(crate) use super::cell::UnsafeCell;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::{Thread, current, park, yield_now};
    pub(crate) use std::thread_local;
}

pub(crate) use imp::*;
