//! Foreign wakers that panic: no value is lost, and a group ends.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use dapple_sync::sync::Slot;
use dapple_sync::task::Group;

use crate::bombs::{bomb, drop_bomb};
use crate::runtime;

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[test]
fn a_slot_loses_no_value_to_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let slot = Slot::new(1);
        {
            let mut put = pin!(slot.put(2));
            assert!(poll(put.as_mut(), &bad()).is_pending());
            assert_eq!(slot.try_take(), Some(1));
            assert!(poll(put.as_mut(), Waker::noop()).is_ready());
        }
        assert_eq!(slot.try_take(), Some(2));
        let mut take = pin!(slot.take());
        assert!(poll(take.as_mut(), &bad()).is_pending());
        assert_eq!(slot.try_put(3), Ok(()));
        assert_eq!(poll(take.as_mut(), Waker::noop()), Poll::Ready(3));
    }
}

#[test]
fn a_group_ends_beside_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = runtime(1);
        let _entered = runtime.enter();
        let group = Group::<u32>::new();
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        runtime.block_on(group.spawn(async move { u32::from(rx.recv().is_err()) }));
        let mut joins = pin!(group.join_next());
        assert!(poll(joins.as_mut(), &bad()).is_pending());
        drop(tx);
        runtime.block_on(group.all_ended());
        assert_eq!(runtime.block_on(group.join_next()).unwrap().unwrap(), 1);
        assert!(group.is_empty());
    }
}

#[test]
fn a_group_is_cancelled_beside_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = runtime(1);
        let _entered = runtime.enter();
        let group = Group::<()>::new();
        runtime.block_on(group.spawn(std::future::pending()));
        let token = group.token().clone();
        let mut cancelled = pin!(token.cancelled());
        assert!(poll(cancelled.as_mut(), &bad()).is_pending());
        group.cancel();
        runtime.block_on(group.all_ended());
        assert!(group.is_empty());
    }
}
