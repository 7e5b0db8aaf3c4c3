//! The lock types of this crate, so that there is one place to change them.
//!
//! No user code runs under these locks, except under the dispatch lock of a slot. A panic while a
//! lock is held leaves no state half changed, so poisoning would only make other threads panic.
//! Cloning and dropping a waker is foreign code, too: clone before taking the lock, and drop the
//! replaced waker after it. (Dropping the last waker of a task may drop the task, and with it code
//! that takes the lock again.)

use std::ops::{Deref, DerefMut};
use std::sync::{self, Condvar, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::yield_now;

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

    /// `None` if another thread holds the lock.
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

/// A spin lock for sections of at most a few microseconds that nearly always find it free: one
/// locked instruction instead of two. No user code runs under it. It is the same as the scheduler's
/// lock, and the loom models of that lock cover this one.
///
/// | `locked` | means | next |
/// |---|---|---|
/// | `false` | free | `swap(true)` by the thread that enters |
/// | `true` | held | `store(false)` by the holder |
pub(crate) struct Brief<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `locked` lets one guard exist at a time, so the value only moves between threads.
unsafe impl<T: Send> Sync for Brief<T> {}

/// Access to the value of a [`Brief`]; dropping it unlocks.
pub(crate) struct BriefGuard<'a, T> {
    lock: &'a Brief<T>,
    value: *mut T,
}

impl<T> Brief<T> {
    pub(crate) fn new(value: T) -> Self {
        Brief { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// `None` if another thread holds the lock.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<BriefGuard<'_, T>> {
        // Acquire pairs with the Release in `BriefGuard::drop`.
        if self.locked.swap(true, Ordering::Acquire) { None } else { Some(self.guard()) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> BriefGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> BriefGuard<'_, T> {
        let mut spins = 0_u32;
        loop {
            // Relaxed: a hint when to try again; `try_lock` orders. (loom would explore without end
            // how old the hint can be.)
            while cfg!(not(dapple_loom)) && self.locked.load(Ordering::Relaxed) {
                spins = spins.wrapping_add(1);
                // The holder may have been preempted, so this yields the core.
                if spins.is_multiple_of(64) { yield_now() } else { std::hint::spin_loop() }
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            if cfg!(dapple_loom) {
                yield_now();
            }
        }
    }

    #[inline]
    fn guard(&self) -> BriefGuard<'_, T> {
        BriefGuard { lock: self, value: self.value.with_mut(|value| value) }
    }
}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see `locked`), and `&self` excludes `deref_mut`.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (see `locked`), borrowed mutably.
        unsafe { &mut *self.value }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `try_lock`.
        if cfg!(dapple_loom) {
            // loom does not order a plain store against concurrent exchanges, and lets those spin
            // for ever.
            self.lock.locked.swap(false, Ordering::Release);
        } else {
            self.lock.locked.store(false, Ordering::Release);
        }
    }
}
