//! The one place that knows whether locks and thread-locals are std's, or shuttle's for the models in `tests/shuttle`,
//! which so run the shipped code. (What slots use of tokio's is switched in `sync::permits`; groups use tokio's notify and
//! semaphore as they are, which are one step each to a model: they call wakers after their own locks.)

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(dapple_shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::thread::LocalKey as ThreadKey;
#[cfg(not(dapple_shuttle))]
pub(crate) use std::thread::LocalKey as ThreadKey;

/// Where others can come in between although nothing is locked or stored that a model sees.
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
