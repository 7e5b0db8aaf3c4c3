//! Futures that are dropped, forgotten or hit by a panic, in each of their states: the rows of the
//! table in `docs/safety.md`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::{Color, block_on};
use dapple_sync::sync::Slot;
use dapple_sync::task::Group;

use crate::forget::forget;
use crate::run;

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        // Not `panic!`: its hook would print.
        resume_unwind(Box::new("as the test says"));
    }
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

fn let_go<T>(value: T, forgets: bool) {
    if forgets { forget(value) } else { drop(value) }
}

#[test]
fn a_take_that_is_let_go_of() {
    for forgets in [false, true] {
        // Not polled.
        let slot = Slot::new(1);
        let_go(Box::pin(slot.take()), forgets);
        assert_eq!(slot.try_take(), Some(1));
        // Waiting, and granted.
        for granted in [false, true] {
            let slot = Slot::empty();
            let mut future = Box::pin(slot.take());
            assert!(poll(&mut future, Waker::noop()).is_pending());
            if granted {
                slot.try_put(1).unwrap();
                let_go(future, forgets);
            } else {
                let_go(future, forgets);
                slot.try_put(1).unwrap();
            }
            // A forgotten one keeps the turn for ever; the value stays in the slot.
            assert_eq!(slot.try_take(), (!forgets).then_some(1));
            assert_eq!(slot.into_inner(), forgets.then_some(1));
        }
        // Ready.
        let slot = Slot::new(1);
        let mut future = Box::pin(slot.take());
        assert_eq!(poll(&mut future, Waker::noop()), Poll::Ready(1));
        let_go(future, forgets);
        assert_eq!(slot.try_put(2), Ok(()));
    }
}

#[test]
fn a_put_that_is_let_go_of() {
    for forgets in [false, true] {
        let slot = Slot::empty();
        let_go(Box::pin(slot.put(1)), forgets);
        assert_eq!(slot.try_take(), None);
        for granted in [false, true] {
            let slot = Slot::new(1);
            let mut future = Box::pin(slot.put(2));
            assert!(poll(&mut future, Waker::noop()).is_pending());
            if granted {
                assert_eq!(slot.try_take(), Some(1));
                let_go(future, forgets);
            } else {
                let_go(future, forgets);
                assert_eq!(slot.try_take(), Some(1));
            }
            // A forgotten one keeps the turn and its value for ever.
            assert_eq!(slot.try_put(3), if forgets { Err(3) } else { Ok(()) });
        }
    }
}

#[test]
fn a_waker_that_panics_takes_no_value_with_it() {
    let slot = Slot::empty();
    let mut future = Box::pin(slot.take());
    assert!(poll(&mut future, &Waker::from(Arc::new(Bomb))).is_pending());
    let _ = catch_unwind(AssertUnwindSafe(|| slot.try_put(1)));
    assert_eq!(poll(&mut future, Waker::noop()), Poll::Ready(1));
    assert_eq!(slot.try_put(2), Ok(()));
}

#[test]
fn waits_for_members_lose_no_result() {
    run(2, async {
        for forgets in [false, true] {
            for polled in [false, true] {
                let group = Group::new();
                let gate = Arc::new(Slot::empty());
                let opens = gate.clone();
                group.members().spawn(async move { opens.take().await }).await;
                let members = group.members().clone();
                let mut next = Box::pin(members.join_next());
                let mut all = Box::pin(members.join_all());
                let mut ended = Box::pin(members.all_ended());
                if polled {
                    assert!(poll(&mut next, Waker::noop()).is_pending());
                    assert!(poll(&mut all, Waker::noop()).is_pending());
                    assert!(poll(&mut ended, Waker::noop()).is_pending());
                }
                let_go((next, all, ended), forgets);
                gate.put(7).await;
                assert!(matches!(members.join_next().await, Some(Ok(7))));
            }
        }
    });
}

#[test]
fn a_waker_that_panics_hides_no_end_from_others() {
    run(2, async {
        let group = Group::new();
        let gate = Arc::new(Slot::empty());
        let opens = gate.clone();
        let color = Color::new();
        group.members().spawn_in(&color, async move { opens.take().await }).await;
        let members = group.members().clone();
        let mut bomb = Box::pin(members.all_ended());
        assert!(poll(&mut bomb, &Waker::from(Arc::new(Bomb))).is_pending());
        gate.put(()).await;
        members.all_ended().await;
        assert!(poll(&mut bomb, Waker::noop()).is_ready());
    });
}

#[test]
fn a_panic_of_a_member_is_reported() {
    run(1, async {
        let group = Group::<()>::new();
        group.members().spawn(async { resume_unwind(Box::new("as the test says")) }).await;
        assert!(group.members().join_next().await.unwrap().unwrap_err().is_panic());
    });
}

dapple_sync::task_local! {
    static DEPTH: u32;
}

#[test]
fn a_value_of_a_task_goes_with_its_future() {
    let scope = |body: Pin<Box<dyn Future<Output = ()> + Send>>| Box::pin(DEPTH.scope(1, body));
    for forgets in [false, true] {
        let_go(scope(Box::pin(async {})), forgets);
        let mut waits = scope(Box::pin(std::future::pending()));
        assert!(poll(&mut waits, Waker::noop()).is_pending());
        let_go(waits, forgets);
        assert!(DEPTH.try_get().is_err());
    }
    let mut panics = scope(Box::pin(async { resume_unwind(Box::new("as the test says")) }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut panics, Waker::noop()))).is_err());
    assert!(DEPTH.try_get().is_err());
    block_on(scope(Box::pin(async { assert_eq!(DEPTH.get(), 1) })));
}
