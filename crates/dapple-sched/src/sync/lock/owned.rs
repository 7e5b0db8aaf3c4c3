//! The lock of a worker's run queue: one thread, its owner, takes it without a locked instruction for as long as no other thread
//! wants it (a biased lock).
//!
//! A worker takes its own lock once for each turn and once for each post; others take it when they steal, hold in line or
//! look at numbers. A locked instruction waits until all stores before it have left the core. With one at each end of a
//! callback those were a third of the time of W2 and W4.
//!
//! # States
//!
//! | `shared` | `inside` | `locked` | meaning | next |
//! |---|---|---|---|---|
//! | false | false | false | free | the owner: `inside`; another thread: `locked` |
//! | false | true | false | the owner is in | the owner: free |
//! | false | either | true | another thread is about to revoke the owner's privilege; or the owner is in, and has just taken it back | that thread: `shared`; the owner: free |
//! | true | true | false | free, and the owner is about to see `shared` | the owner: not `inside`, then as any thread |
//! | true | false | false | free | any thread: `locked` |
//! | true | true | true | a thread waits for the owner to leave, or to see `shared` | the owner: not `inside` |
//! | true | false | true | a thread is in | that thread: not `locked`; if it is the owner, perhaps not `shared` before |
//!
//! `locked` is that of the lock inside; `shared` and `patience` change only while it is held.
//!
//! The owner writes `inside`, then reads `shared`; a thread that revokes writes `shared`, then reads `inside`. One of them must
//! see the other, which takes a full barrier between the write and the read on both sides. The one on the owner's side is for
//! the compiler only: the other thread makes all threads pass one ([`Barrier`]). Where there is no such barrier, the lock is
//! shared from the beginning, and for good.
//!
//! Revoking costs some microseconds on both sides. So the owner takes its privilege back only after it has been in so many
//! times, and twice as many after each time that it was revoked.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Token;

use super::{Guard, Lock, SPINS_BEFORE_YIELD, wait_a_little};
use crate::runtime::context;
use crate::runtime::driver::{Barrier, Driver};
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::sync::barrier::light_barrier;
use crate::sync::{UnsafeCell, spin_loop};

/// See the module.
pub(crate) struct OwnedLock<T> {
    lock: Lock<T>,
    inside: AtomicBool,
    shared: AtomicBool,
    /// What tells the owner's thread from all others ([`context::thread_token`]), or 0. A thread only asks whether it is its own
    /// token, and only that thread writes it; so models need not know of this word.
    owner: Token,
    patience: UnsafeCell<Patience>,
    /// Has a barrier; `None`: the lock is always shared.
    driver: Option<Arc<dyn Driver>>,
}

struct Patience {
    /// How often the owner has to be in until it takes its privilege back,
    left: u32,
    /// and how often in all.
    all: u32,
}

// SAFETY: the value is the lock's, and the states let one guard of it exist at a time; `patience` is touched under the lock inside.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

impl<T> OwnedLock<T> {
    /// Its owner may be privileged, if the driver has a barrier.
    pub(crate) fn new(driver: &Arc<dyn Driver>, value: T) -> OwnedLock<T> {
        OwnedLock {
            lock: Lock::new(value),
            inside: AtomicBool::new(false),
            shared: AtomicBool::new(true),
            owner: Token::new(0),
            patience: UnsafeCell::new(Patience { left: PATIENCE_MIN, all: PATIENCE_MIN }),
            driver: driver.barrier().is_some_and(Barrier::pass).then(|| driver.clone()),
        }
    }

    /// The calling thread is the owner from here on.
    pub(crate) fn bind(&self) {
        if self.driver.is_some() {
            // Relaxed: see the field.
            self.owner.store(context::thread_token(), Relaxed);
        }
    }

    /// There is no owner any more. Called by the owner, which is not in.
    pub(crate) fn unbind(&self) {
        // Relaxed: see the field.
        self.owner.store(0, Relaxed);
    }

    #[inline]
    fn is_owner(&self) -> bool {
        // Relaxed: see the field.
        self.owner.load(Relaxed) == context::thread_token()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.is_owner() { self.lock_as_owner() } else { self.lock_as_other() }
    }

    /// Takes the lock unless another thread is in.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.is_owner() { self.try_lock_as_owner(Lock::try_lock) } else { self.admit(self.lock.try_lock()?) }
    }

    /// Waits for the lock as long as a section takes, but not for a holder that was preempted.
    #[cfg_attr(dapple_loom, allow(dead_code, reason = "to a model it is `try_lock`"))]
    #[inline]
    pub(crate) fn try_lock_briefly(&self) -> Option<Guard<'_, T>> {
        if self.is_owner() {
            self.try_lock_as_owner(Lock::try_lock_briefly)
        } else {
            self.admit(self.lock.try_lock_briefly()?)
        }
    }

    #[inline]
    fn lock_as_owner(&self) -> Guard<'_, T> {
        if self.enter() { self.lock.guard_by(&self.inside) } else { self.lock_shared_as_owner() }
    }

    /// As the owner, by itself, if it may; otherwise it is not in.
    #[inline]
    fn enter(&self) -> bool {
        debug_assert!(!self.inside.load(Relaxed), "a worker is in its own lock");
        // Relaxed: it gives nothing away. A thread that revokes sees it by the barrier.
        self.inside.store(true, Relaxed);
        light_barrier();
        // Relaxed: what another thread has done is seen by the lock inside, and that it is false this thread has written.
        let shared = self.shared.load(Relaxed);
        if shared {
            // Release, as wherever a section may have ended.
            self.inside.store(false, Release);
        }
        !shared
    }

    /// Never waits for long, as another thread that is in may wait for what this one holds.
    #[cold]
    fn try_lock_as_owner<'a>(&'a self, try_lock: fn(&'a Lock<T>) -> Option<Guard<'a, T>>) -> Option<Guard<'a, T>> {
        if self.enter() { Some(self.lock.guard_by(&self.inside)) } else { try_lock(&self.lock) }
    }

    #[cold]
    fn lock_shared_as_owner(&self) -> Guard<'_, T> {
        let guard = self.lock.lock();
        // SAFETY: the lock inside is held.
        let waited = self.patience.with_mut(|patience| unsafe {
            (*patience).left = (*patience).left.saturating_sub(1);
            (*patience).left == 0
        });
        if waited && self.driver.is_some() {
            // Relaxed: others see it once they have the lock inside.
            self.shared.store(false, Relaxed);
        }
        guard
    }

    fn lock_as_other(&self) -> Guard<'_, T> {
        let guard = self.lock.lock();
        self.end_privilege();
        let mut spins = 0;
        while self.owner_is_inside() {
            wait_a_little(&mut spins);
        }
        guard
    }

    /// As another thread than the owner, which has the lock inside: it is in, if the owner leaves in time.
    fn admit<'a>(&'a self, guard: Guard<'a, T>) -> Option<Guard<'a, T>> {
        self.end_privilege();
        let mut tries = (0..SPINS_BEFORE_YIELD).inspect(|tried| {
            if *tried > 0 {
                spin_loop()
            }
        });
        tries.any(|_| !self.owner_is_inside()).then_some(guard)
    }

    /// Also where the lock is shared: the thread that made it so may have given up before the owner had left.
    fn owner_is_inside(&self) -> bool {
        // Acquire pairs with the end of the owner's section.
        self.inside.load(Acquire)
    }

    /// Sees to it that the owner, once it is not inside, takes the lock like any other thread. Called while the lock inside is
    /// held.
    #[inline]
    fn end_privilege(&self) {
        // Relaxed: it changes only while the lock inside is held.
        if !self.shared.load(Relaxed) {
            self.revoke();
        }
    }

    #[cold]
    fn revoke(&self) {
        // SAFETY: the lock inside is held.
        self.patience.with_mut(|patience| unsafe {
            let all = ((*patience).all * 2).min(PATIENCE_MAX);
            *patience = Patience { left: all, all };
        });
        // Relaxed: the barrier orders it before the look at `inside`.
        self.shared.store(true, Relaxed);
        // It was there when the lock was made. Without it, or where it panics, no thread can tell whether the owner is in.
        let ends = Ends;
        let passed = self.driver.as_ref().and_then(|driver| driver.barrier()).is_some_and(Barrier::pass);
        if passed {
            std::mem::forget(ends);
        }
    }
}

/// Ends the process when it is dropped.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        eprintln!("dapple: the kernel no longer allows `membarrier`; a filter of system calls must let it pass");
        std::process::abort();
    }
}

/// How often the owner has to be in before it is privileged: at the beginning, and at most. Once in a model, which has few steps.
const PATIENCE_MIN: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { 1_024 };
const PATIENCE_MAX: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { 65_536 };

/// The same without privileges.
#[cfg(any(dapple_loom, dapple_shuttle))]
pub(crate) struct UnownedLock<T>(Lock<T>);

#[cfg(any(dapple_loom, dapple_shuttle))]
impl<T> UnownedLock<T> {
    pub(crate) fn new(_driver: &Arc<dyn Driver>, value: T) -> UnownedLock<T> {
        UnownedLock(Lock::new(value))
    }

    pub(crate) fn bind(&self) {}

    pub(crate) fn unbind(&self) {}
}

#[cfg(any(dapple_loom, dapple_shuttle))]
impl<T> std::ops::Deref for UnownedLock<T> {
    type Target = Lock<T>;

    fn deref(&self) -> &Lock<T> {
        &self.0
    }
}
