//! The lock of a worker's run queue. One thread, its owner, takes it without a locked instruction
//! as long as no other thread wants it (a biased lock).
//!
//! A worker takes its own lock once for each turn and once for each post; others take it to steal,
//! to hold in line or to read numbers. A locked instruction waits until all earlier stores have
//! left the core. With one at each end of a callback, those waits were a third of the time of W2
//! and W4.
//!
//! # States
//!
//! | `shared` | `inside` | `locked` | meaning | next |
//! |---|---|---|---|---|
//! | false | false | false | free | the owner: `inside`; another thread: `locked` |
//! | false | true | false | the owner is in | the owner: free |
//! | false | either | true | another thread is about to revoke the owner's privilege; or the owner is in, and has just reclaimed it | that thread: `shared`; the owner: free |
//! | true | true | false | free, and the owner is about to see `shared` | the owner: not `inside`, then as any thread |
//! | true | false | false | free | any thread: `locked` |
//! | true | true | true | a thread waits for the owner to leave, or to see `shared` | the owner: not `inside` |
//! | true | false | true | a thread is in | that thread: not `locked`; if it is the owner, perhaps not `shared` before |
//!
//! `locked` belongs to the inner lock; `shared` and `patience` change only while it is held.
//!
//! The owner writes `inside`, then reads `shared`; a thread that revokes writes `shared`, then
//! reads `inside`. One of them must see the other, so both sides need a full barrier between the
//! write and the read. On the owner's side it is only for the compiler: the other thread makes all
//! threads pass one ([`Barrier`]). Without such a barrier the lock is shared from the beginning to
//! the end.
//!
//! Revoking costs some microseconds on both sides. So the owner reclaims its privilege only after
//! it has been inside a number of times, and twice as many after each revocation.

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
    /// The token of the owner's thread ([`context::thread_token`]), or 0. A thread only checks
    /// whether it is its own token, and only that thread writes it; so models need not know this
    /// word.
    owner: Token,
    patience: UnsafeCell<Patience>,
    /// Has a barrier; `None`: the lock is always shared.
    driver: Option<Arc<dyn Driver>>,
}

struct Patience {
    /// How often the owner still has to be in until it reclaims its privilege,
    left: u32,
    /// and how often in all.
    all: u32,
}

// SAFETY: the value belongs to the lock, and the states let one guard of it exist at a time;
// `patience` is touched under the inner lock.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

impl<T> OwnedLock<T> {
    /// The owner gets its privilege if the driver has a barrier.
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

    /// Makes the calling thread the owner.
    pub(crate) fn bind(&self) {
        if self.driver.is_some() {
            // Relaxed: see the field.
            self.owner.store(context::thread_token(), Relaxed);
        }
    }

    /// Ends the ownership. The owner calls this while it is not inside.
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

    /// Takes the lock unless another thread is inside.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.is_owner() { self.try_lock_as_owner(Lock::try_lock) } else { self.admit(self.lock.try_lock()?) }
    }

    /// Waits for the lock as long as a section takes, but not for a preempted holder.
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

    /// Lets the owner in without the inner lock, if it still may. False if it is not in.
    #[inline]
    fn enter(&self) -> bool {
        debug_assert!(!self.inside.load(Relaxed), "a worker is in its own lock");
        // Relaxed: it releases nothing. The barrier makes a thread that revokes see it.
        self.inside.store(true, Relaxed);
        light_barrier();
        // Relaxed: the inner lock shows what other threads have done, and only this thread writes
        // `false`.
        let shared = self.shared.load(Relaxed);
        if shared {
            // Release, as at every end of a section.
            self.inside.store(false, Release);
        }
        !shared
    }

    /// Never waits for long, because another holder may wait for something that this thread holds.
    #[cold]
    fn try_lock_as_owner<'a>(&'a self, try_lock: fn(&'a Lock<T>) -> Option<Guard<'a, T>>) -> Option<Guard<'a, T>> {
        if self.enter() { Some(self.lock.guard_by(&self.inside)) } else { try_lock(&self.lock) }
    }

    #[cold]
    fn lock_shared_as_owner(&self) -> Guard<'_, T> {
        let guard = self.lock.lock();
        // SAFETY: the inner lock is held.
        let waited = self.patience.with_mut(|patience| unsafe {
            (*patience).left = (*patience).left.saturating_sub(1);
            (*patience).left == 0
        });
        if waited && self.driver.is_some() {
            // Relaxed: other threads see it under the inner lock.
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

    /// For a thread other than the owner that has the inner lock: lets it in, if the owner leaves
    /// in time.
    fn admit<'a>(&'a self, guard: Guard<'a, T>) -> Option<Guard<'a, T>> {
        self.end_privilege();
        let mut tries = (0..SPINS_BEFORE_YIELD).inspect(|tried| {
            if *tried > 0 {
                spin_loop()
            }
        });
        tries.any(|_| !self.owner_is_inside()).then_some(guard)
    }

    /// Checked even if the lock is shared: the thread that made it shared may have given up before
    /// the owner left.
    fn owner_is_inside(&self) -> bool {
        // Acquire pairs with the end of the owner's section.
        self.inside.load(Acquire)
    }

    /// Makes the owner, once it is not inside, take the lock like any other thread. The caller
    /// holds the inner lock.
    #[inline]
    fn end_privilege(&self) {
        // Relaxed: it changes only while the inner lock is held.
        if !self.shared.load(Relaxed) {
            self.revoke();
        }
    }

    #[cold]
    fn revoke(&self) {
        // SAFETY: the inner lock is held.
        self.patience.with_mut(|patience| unsafe {
            let all = ((*patience).all * 2).min(PATIENCE_MAX);
            *patience = Patience { left: all, all };
        });
        // Relaxed: the barrier orders it before the read of `inside`.
        self.shared.store(true, Relaxed);
        // The barrier was there when the lock was made. If it fails or panics, no thread can tell
        // whether the owner is inside.
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

/// How often the owner has to be inside before it is privileged: at the beginning, and at most.
/// Once in a model, which has few steps.
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
