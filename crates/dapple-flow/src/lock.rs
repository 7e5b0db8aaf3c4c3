//! The lock of this crate.
//!
//! No user code runs under it, so a panic while it is held leaves no state half changed. Cloning or
//! dropping a waker is user code, too: code clones it before taking the lock, and drops the
//! replaced one after the lock.

use std::sync::{self, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

/// A mutex without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a notification, at most `limit`.
pub(crate) fn wait_timeout<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}
