//! The smallest protocols of the shipped code, in every interleaving and memory order that loom can
//! tell apart.
//!
//! `RUSTFLAGS="--cfg dapple_loom" cargo test -p dapple-stm --release --test loom`
//!
//! A comment at each model names the deliberate bugs that it has caught; `tests/mutations.txt` has
//! them as patches, which `cargo xtask mutants` applies. loom treats `SeqCst` accesses as acquire
//! and release; where their total order matters, the code has a fence for the models only
//! (`sync::sc_fence`). loom also lets a `SeqCst` load see the newest `SeqCst` store, so it cannot
//! tell whether the store of a value must release.

#![cfg(dapple_loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use dapple_stm::{TVar, atomically, atomically_blocking};
use loom::thread;

/// Runs a model in all interleavings with at most this many preemptions, and returns their number.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let started = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions in {:?}", executions.load(Ordering::Relaxed), started.elapsed());
}

fn set_both(x: &TVar<u32>, y: &TVar<u32>, value: u32) {
    atomically_blocking(|tx| {
        tx.write(x, value)?;
        tx.write(y, value)
    });
}

// One thread writes two variables, another reads them: they are equal in every attempt.
//
// Caught: a read that does not check earlier reads; a commit that writes before it has locked
// everything.
#[test]
fn no_attempt_is_torn() {
    check(5, || {
        let (x, y) = (TVar::new(0), TVar::new(0));
        let writer = thread::spawn({
            let (x, y) = (x.clone(), y.clone());
            move || set_both(&x, &y, 1)
        });
        atomically_blocking(|tx| {
            let (left, right) = (tx.read(&x)?, tx.read(&y)?);
            assert_eq!(left, right, "torn");
            Ok(())
        });
        writer.join().unwrap();
    });
}

// The same with a reader that has read enough to move the clock, and then accepts versions up to
// that.
//
// Caught: a clock that is moved after the check.
#[test]
fn the_clock_is_moved_by_a_reader() {
    check(4, || {
        let (a, b, x, y) = (TVar::new(0), TVar::new(0), TVar::new(0), TVar::new(0));
        let writer = thread::spawn({
            let (x, y) = (x.clone(), y.clone());
            move || set_both(&x, &y, 1)
        });
        atomically_blocking(|tx| {
            let sum = tx.read(&a)? + tx.read(&b)?;
            let (left, right) = (tx.read(&x)?, tx.read(&y)?);
            assert_eq!((sum, left), (0, right), "torn");
            Ok(())
        });
        writer.join().unwrap();
    });
}

// A thread moves the clock while a commit has its locks and a reader begins.
//
// Caught: a commit that reads the clock before it locks.
#[test]
fn a_clock_that_others_move() {
    check(4, || {
        let (x, y) = (TVar::new(0), TVar::new(0));
        let writer = thread::spawn({
            let (x, y) = (x.clone(), y.clone());
            move || set_both(&x, &y, 1)
        });
        let mover = thread::spawn(|| dapple_stm::model::move_clock(50));
        atomically_blocking(|tx| {
            let (left, right) = (tx.read(&x)?, tx.read(&y)?);
            assert_eq!(left, right, "torn");
            Ok(())
        });
        writer.join().unwrap();
        mover.join().unwrap();
    });
}

// Each thread reads what the other writes: one of them must see it.
//
// Caught: a commit that does not check its reads, or checks them outside of the total order; a
// failed attempt that keeps its locks (no end).
#[test]
fn no_write_skew() {
    check(5, || {
        let (x, y) = (TVar::new(0), TVar::new(0));
        let other = thread::spawn({
            let (x, y) = (x.clone(), y.clone());
            move || {
                atomically_blocking(|tx| {
                    let seen = tx.read(&x)?;
                    tx.write(&y, seen + 1)
                })
            }
        });
        atomically_blocking(|tx| {
            let seen = tx.read(&y)?;
            tx.write(&x, seen + 1)
        });
        other.join().unwrap();
        let both = (x.load(), y.load());
        assert!(both == (1, 2) || both == (2, 1), "{both:?}");
    });
}

// Two threads count, also on the serial path, which a transaction takes here after two failures.
//
// Caught: a lock taken at any version; an unlock that releases nothing.
#[test]
fn no_update_is_lost() {
    check(5, || {
        let x = TVar::new(0);
        let other = thread::spawn({
            let x = x.clone();
            move || (0..2).for_each(|_| atomically_blocking(|tx| tx.modify(&x, |count| count + 1)))
        });
        (0..2).for_each(|_| atomically_blocking(|tx| tx.modify(&x, |count| count + 1)));
        other.join().unwrap();
        assert_eq!(x.load(), 4);
    });
}

// Loads during a transaction on the serial path, which it takes here after two failures: after a
// load of one new value, no load returns an old one.
//
// Caught: a commit on the serial path that leaves unwritten variables readable.
#[test]
fn loads_see_the_serial_path_commit_at_once() {
    check(3, || {
        let (x, y) = (TVar::new(0), TVar::new(0));
        let (mut attempts, mut loads) = (0, None);
        atomically_blocking(|tx| {
            attempts += 1;
            tx.read(&x)?;
            if attempts <= 2 {
                let x = x.clone();
                thread::spawn(move || atomically_blocking(|tx| tx.modify(&x, |count| count + 1))).join().unwrap();
            } else {
                let (x, y) = (x.clone(), y.clone());
                loads = Some(thread::spawn(move || (x.load(), y.load())));
            }
            tx.write(&x, 10)?;
            tx.write(&y, 10)
        });
        let loaded = loads.expect("the third attempt succeeds").join().unwrap();
        assert!(matches!(loaded, (2, 0 | 10) | (10, 10)), "{loaded:?}");
    });
}

// One thread waits for the write of another.
//
// Caught: a wait that begins although its variable has changed; a commit that wakes no waiter; a
// wait that does not mark its variable; a lock that forgets the waiters (deadlocks).
#[test]
fn a_wait_is_over() {
    check(5, || {
        let x = TVar::new(0);
        let writer = thread::spawn({
            let x = x.clone();
            move || atomically_blocking(|tx| tx.write(&x, 1))
        });
        atomically_blocking(|tx| {
            let seen = tx.read(&x)?;
            tx.check(seen > 0)
        });
        writer.join().unwrap();
        assert_eq!(x.waiters(), 0);
    });
}

// A wait is dropped while another transaction writes its variable; a second wait must not be lost
// by that.
#[test]
fn a_wait_is_canceled() {
    check(4, || {
        let x = TVar::new(0);
        let writer = thread::spawn({
            let x = x.clone();
            move || atomically_blocking(|tx| tx.write(&x, 1))
        });
        let wait_for_x = || {
            atomically(|tx| {
                let seen = tx.read(&x)?;
                tx.check(seen > 0)
            })
        };
        {
            let mut wait = pin!(wait_for_x());
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        wait_for_x().blocking();
        writer.join().unwrap();
        assert_eq!(x.waiters(), 0);
    });
}
