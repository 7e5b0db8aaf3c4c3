//! The one place that knows whether locks are std's, or shuttle's for the models in `tests/shuttle`, which so run the shipped
//! code.

#[cfg(dapple_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(dapple_shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks. What is kept behind the locks of this crate is whole between any two statements that can panic, so poison means
/// nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
