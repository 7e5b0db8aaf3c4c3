//! The one lock type of this crate, so that there is one place to change it.
//!
//! Nothing that a user wrote runs under one of these locks but the dispatch lock of a slot, so a panic while a lock is held
//! leaves no state half changed, and poisoning would only spread the panic to bystanders.

use std::mem;
use std::sync::{self, Condvar, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
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

    /// `None` when somebody else holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Waits for a notification at most `limit`; also returns whether the limit passed.
pub(crate) fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, result) = condition.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Makes `kept` wake what `waker` wakes. Returns what it was, to be dropped when no lock is held: with the last waker of
/// a task the task may go, and with it whatever takes the lock again.
#[must_use = "to be dropped after the lock"]
pub(crate) fn refresh(kept: &mut Waker, waker: &Waker) -> Option<Waker> {
    (!kept.will_wake(waker)).then(|| mem::replace(kept, waker.clone()))
}
