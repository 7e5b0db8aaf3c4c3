//! The lock of this crate.
//!
//! No code of users runs under it, so a panic while it is held leaves no state half changed. To clone a waker and to drop
//! one is code of users, too: it is cloned before the lock is taken, and the replaced one is dropped after the lock.

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

/// Waits for a notification, `limit` at most.
pub(crate) fn wait_timeout<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}
