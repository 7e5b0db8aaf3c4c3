//! A small spin lock for sections of a few dozen instructions.
//!
//! Not `std::sync::Mutex`, because loom and ThreadSanitizer check the scheduler, and neither sees
//! through std's futex lock. A section under this lock never calls user code, never allocates
//! without bound and never blocks.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | `false` | free | `swap(true)` by the thread that enters |
//! | `true` | held | `store(false)` by the holder |

mod owned;

use std::ops::{Deref, DerefMut};

use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::sync::{UnsafeCell, spin_loop, yield_now};

#[cfg(any(not(dapple_shuttle), dapple_loom))]
pub(crate) use owned::OwnedLock;
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) use owned::UnownedLock;

/// A value that one thread at a time may touch.
pub(crate) struct Lock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `locked` lets one guard exist at a time, so the value only moves between threads.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: as above; the lock owns its value.
unsafe impl<T: Send> Send for Lock<T> {}

/// Access to the value of a lock; dropping it unlocks.
pub(crate) struct Guard<'a, T> {
    /// True as long as the guard exists.
    held: &'a AtomicBool,
    value: &'a UnsafeCell<T>,
}

impl<T> Lock<T> {
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    pub(crate) const fn new(value: T) -> Self {
        Lock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn new(value: T) -> Self {
        Lock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire pairs with the Release in `Guard::drop`.
        if self.locked.swap(true, Acquire) { None } else { Some(self.guard_by(&self.locked)) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Tries for about as long as a section takes.
    #[inline]
    pub(crate) fn try_lock_briefly(&self) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| {
            (0..SPINS_BEFORE_YIELD).find_map(|_| {
                spin_loop();
                // Relaxed: a hint when to try again; `try_lock` orders.
                if self.locked.load(Relaxed) { None } else { self.try_lock() }
            })
        })
    }

    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        let mut spins = 0u32;
        loop {
            // Relaxed: only a hint for a retry; `try_lock` orders. (loom would explore without end
            // how old the hint can be.)
            while cfg!(not(dapple_loom)) && self.locked.load(Relaxed) {
                wait_a_little(&mut spins);
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
    fn guard_by<'a>(&'a self, held: &'a AtomicBool) -> Guard<'a, T> {
        Guard { held, value: &self.value }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see the states of the lock), and `&self` excludes
        // `deref_mut`.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (see the states of the lock), borrowed mutably.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `try_lock`.
        if cfg!(dapple_loom) {
            // loom does not order a plain store against concurrent exchanges, and lets those spin
            // for ever.
            self.held.swap(false, Release);
        } else {
            self.held.store(false, Release);
        }
    }
}

/// The holder may have been preempted (more workers than cores), so this sometimes yields the core.
fn wait_a_little(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(SPINS_BEFORE_YIELD) { yield_now() } else { spin_loop() }
}

/// In a model, each try would be explored.
const SPINS_BEFORE_YIELD: u32 = if cfg!(dapple_loom) { 1 } else { 64 };
