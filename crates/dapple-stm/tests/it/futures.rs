//! A transaction's future that is dropped, forgotten or hit by a panic, in each of its states: the
//! rows of the table in `docs/safety.md`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dapple_stm::{Abort, TVar, atomically, atomically_blocking, atomically_or_abort};

use crate::forget::forget;
use crate::support::counting;

type Waiting = Pin<Box<dyn Future<Output = u32>>>;
type Make = fn(&TVar<u32>) -> Waiting;

/// Waits until the variable is above 0, and adds 1 to it.
const WAITS: [(&str, Make); 2] = [
    ("Atomically", |var| {
        let var = var.clone();
        Box::pin(atomically(move |tx| {
            let now = tx.read(&var)?;
            tx.check(now > 0)?;
            tx.write(&var, now + 1)?;
            Ok(now)
        }))
    }),
    ("AtomicallyOrAbort", |var| {
        let var = var.clone();
        let future = atomically_or_abort(move |tx| {
            let now = tx.read(&var)?;
            tx.check(now > 0)?;
            tx.write(&var, now + 1)?;
            Ok::<u32, Abort<()>>(now)
        });
        Box::pin(async move { future.await.unwrap() })
    }),
];

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        explode();
    }
}

fn explode() {
    // Not `panic!`: its hook would print.
    resume_unwind(Box::new("as the test says"));
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

fn let_go<T>(value: T, forgets: bool) {
    if forgets { forget(value) } else { drop(value) }
}

fn set(var: &TVar<u32>, value: u32) {
    atomically_blocking(|tx| tx.write(var, value));
}

fn value(var: &TVar<u32>) -> u32 {
    atomically_blocking(|tx| tx.read(var))
}

#[test]
fn a_transaction_that_is_let_go_of_changes_nothing() {
    for (name, make) in WAITS {
        for forgets in [false, true] {
            // Not polled; waiting; woken.
            for state in 0..3 {
                let var = TVar::new(u32::from(state == 0));
                let mut future = make(&var);
                let (count, waker) = counting();
                if state > 0 {
                    assert!(poll(&mut future, &waker).is_pending());
                }
                if state == 2 {
                    set(&var, 1);
                    assert_eq!(count.woken(), 1);
                }
                let_go(future, forgets);
                set(&var, 5);
                assert_eq!(value(&var), 5, "{name}, state {state}");
                // Others wait and are woken.
                assert_eq!(poll(&mut make(&var), Waker::noop()), Poll::Ready(5));
            }
            let var = TVar::new(1);
            let mut ready = make(&var);
            assert_eq!(poll(&mut ready, Waker::noop()), Poll::Ready(1));
            let_go(ready, forgets);
            assert_eq!(value(&var), 2, "{name}");
        }
    }
}

#[test]
fn a_transaction_that_panics_changes_nothing() {
    let var = TVar::new(1);
    let (inner, other) = (var.clone(), var.clone());
    let mut one: Pin<Box<dyn Future<Output = ()>>> = Box::pin(atomically(move |tx| {
        tx.write(&inner, 2)?;
        explode();
        Ok(())
    }));
    let mut two: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
        let gives_up = atomically_or_abort(move |tx| {
            tx.write(&other, 2)?;
            explode();
            Err::<(), Abort<()>>(Abort::Error(()))
        });
        let _ = gives_up.await;
    });
    for future in [&mut one, &mut two] {
        assert!(catch_unwind(AssertUnwindSafe(|| poll(future, Waker::noop()))).is_err());
    }
    drop((one, two));
    assert_eq!(value(&var), 1);
    set(&var, 3);
    assert_eq!(value(&var), 3);
}

#[test]
fn a_waker_that_panics_takes_no_wake_from_others() {
    for (_, make) in WAITS {
        let var = TVar::new(0);
        let (mut first, mut bomb, mut last) = (make(&var), make(&var), make(&var));
        let (one, two) = (counting(), counting());
        assert!(poll(&mut first, &one.1).is_pending());
        assert!(poll(&mut bomb, &Waker::from(Arc::new(Bomb))).is_pending());
        assert!(poll(&mut last, &two.1).is_pending());
        let _ = catch_unwind(AssertUnwindSafe(|| set(&var, 1)));
        assert_eq!((one.0.woken(), two.0.woken(), value(&var)), (1, 1, 1));
        assert!(poll(&mut bomb, Waker::noop()).is_ready());
    }
}
