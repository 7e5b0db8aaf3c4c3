//! The lock with an owner.

use std::sync::Arc;

use dapple_sched::model::OwnedLock;
use loom::cell::UnsafeCell;
use loom::thread;

use crate::support::{check, driver};

/// A cell under the lock, which loom watches: it fails the model if two threads are in, or if their
/// accesses are not ordered.
#[derive(Clone)]
struct Protected(Arc<UnsafeCell<u32>>, OwnedLock);

// SAFETY: touched under the lock only; loom checks it.
unsafe impl Send for Protected {}

impl Protected {
    fn new() -> Protected {
        Protected(Arc::new(UnsafeCell::new(0)), OwnedLock::new(driver(1)))
    }

    fn touch(&self) {
        // SAFETY: see the struct.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn lock(&self) {
        self.1.lock(|_| self.touch());
    }

    fn try_lock(&self) -> bool {
        self.1.try_lock(|_| self.touch()).is_some()
    }

    fn count(&self) -> u32 {
        // SAFETY: see the struct.
        self.1.lock(|_| self.0.with(|count| unsafe { *count }))
    }
}

// The owner becomes privileged, and another thread wants the lock meanwhile.
//
// Caught: an owner without a barrier, or another thread without one (both are in); a thread that
// does not wait for the owner to leave; an owner that does not check whether it is privileged; an
// owner's section without a release (data race).
#[test]
fn the_owner_meets_another_thread() {
    check(4, || {
        let protected = Protected::new();
        protected.1.bind();
        // It waits for this before it is privileged.
        protected.lock();
        let other = thread::spawn({
            let protected = protected.clone();
            move || {
                protected.lock();
                protected.lock();
            }
        });
        protected.lock();
        protected.lock();
        protected.lock();
        protected.1.unbind();
        other.join().unwrap();
        assert_eq!(protected.count(), 6);
    });
}

// A thread that only tries the lock revokes the privilege, and gives up; then another one comes.
//
// Caught: a thread that waits for the owner only if it has revoked the privilege itself (both are
// in).
#[test]
fn a_thread_gives_up_before_the_owner_has_left() {
    check(3, || {
        let protected = Protected::new();
        protected.1.bind();
        protected.lock();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let protected = protected.clone();
                thread::spawn(move || u32::from(protected.try_lock()))
            })
            .collect();
        protected.lock();
        protected.lock();
        let tried: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
        protected.1.unbind();
        assert_eq!(protected.count(), 3 + tried);
    });
}

// The owner changes: the new one is privileged only after it has waited.
//
// Caught: nothing so far; the model covers the accesses of `owner`.
#[test]
fn the_owner_goes() {
    check(4, || {
        let protected = Protected::new();
        protected.1.bind();
        protected.lock();
        protected.lock();
        protected.1.unbind();
        let next = thread::spawn({
            let protected = protected.clone();
            move || {
                protected.1.bind();
                protected.lock();
                protected.lock();
                protected.1.unbind();
            }
        });
        protected.lock();
        next.join().unwrap();
        assert_eq!(protected.count(), 5);
    });
}

// The owner of lock A tries A while it has lock B; another thread has A, and wants B.
//
// Caught: an owner that waits (deadlock).
#[test]
fn the_owner_only_tries() {
    check(3, || {
        let (protected, other) = (Protected::new(), Arc::new(loom::sync::Mutex::new(())));
        protected.1.bind();
        let thief = thread::spawn({
            let (protected, other) = (protected.clone(), other.clone());
            move || {
                protected.1.lock(|_| {
                    protected.touch();
                    drop(other.lock().unwrap());
                });
            }
        });
        let held = other.lock().unwrap();
        let tried = protected.try_lock();
        drop(held);
        protected.1.unbind();
        thief.join().unwrap();
        assert_eq!(protected.count(), 1 + u32::from(tried));
    });
}
