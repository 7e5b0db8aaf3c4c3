//! The switch between std's locks and thread-locals and shuttle's: the models in `tests/shuttle`
//! run the shipped code with the latter. `sync::permits` switches the parts of tokio that slots
//! use. Groups and `sync::watch` use tokio's notify and semaphore unchanged; for a model each of their
//! operations is one step, because they call wakers after their own locks.

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::sync::atomic::AtomicUsize;
#[cfg(not(dapple_shuttle))]
pub(crate) use std::sync::atomic::AtomicUsize;

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(dapple_shuttle))]
pub(crate) use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(dapple_shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::thread::LocalKey as ThreadKey;
#[cfg(not(dapple_shuttle))]
pub(crate) use std::thread::LocalKey as ThreadKey;

/// A point at which other threads can run although the model sees no lock or store.
#[inline]
pub(crate) fn step() {
    #[cfg(dapple_shuttle)]
    shuttle::thread::yield_now();
}

/// Declares the thread-local behind a task-local value.
#[cfg(not(dapple_shuttle))]
#[doc(hidden)]
#[macro_export]
macro_rules! __place_of_a_value {
    ($type:ty) => {
        ::std::thread_local! {
            static VALUE: ::std::cell::RefCell<::std::option::Option<$type>> =
                const { ::std::cell::RefCell::new(::std::option::Option::None) };
        }
    };
}

/// Declares the thread-local behind a task-local value.
#[cfg(dapple_shuttle)]
#[doc(hidden)]
#[macro_export]
macro_rules! __place_of_a_value {
    ($type:ty) => {
        ::shuttle::thread_local! {
            static VALUE: ::std::cell::RefCell<::std::option::Option<$type>> =
                ::std::cell::RefCell::new(::std::option::Option::None);
        }
    };
}
