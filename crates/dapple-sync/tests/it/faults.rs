//! Foreign wakers that panic: no value is lost, no neighbor is forgotten, and a group ends.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dapple_sync::sync::{Mutex, Notify, RwLock, Semaphore, Slot, broadcast, mpsc, oneshot, watch};
use dapple_sync::task::Group;

use crate::bombs::{bomb, counting, drop_bomb};
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
fn a_group_ends_despite_a_waker_that_panics() {
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
fn a_group_is_cancelled_despite_a_waker_that_panics() {
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

/// Two futures with wakers that panic, and waiters before, between and after them, which `tell`
/// must wake and make ready. The caller of `tell` notices nothing.
fn neighbors_are_woken<F: Future>(wait: impl Fn() -> F, tell: impl FnOnce()) {
    let mut futures: Vec<_> = (0..5).map(|_| Box::pin(wait())).collect();
    let (calls, good) = counting();
    for (future, waker) in futures.iter_mut().zip([good.clone(), bomb(), good.clone(), drop_bomb(), good]) {
        assert!(poll(future.as_mut(), &waker).is_pending());
    }
    tell();
    assert_eq!(calls.count(), 3);
    assert!(futures.iter_mut().all(|future| poll(future.as_mut(), Waker::noop()).is_ready()));
}

#[test]
fn the_neighbors_of_a_waker_that_panics_are_notified() {
    let notify = Notify::new();
    neighbors_are_woken(|| notify.notified(), || notify.notify_waiters());
    let notify = Arc::new(Notify::new());
    neighbors_are_woken(|| notify.clone().notified_owned(), || notify.notify_waiters());
}

#[test]
fn the_neighbors_of_a_waker_that_panics_get_permits() {
    let semaphore = Semaphore::new(0);
    neighbors_are_woken(|| semaphore.acquire(), || semaphore.close());
    let semaphore = Arc::new(Semaphore::new(0));
    neighbors_are_woken(|| semaphore.clone().acquire_owned(), || semaphore.add_permits(5));
    let lock = RwLock::new(());
    let mut written = Some(lock.try_write().unwrap());
    neighbors_are_woken(|| lock.read(), || drop(written.take()));
}

#[test]
fn the_neighbors_of_a_waker_that_panics_receive() {
    let (tx, rx) = broadcast::channel(1);
    neighbors_are_woken(
        || {
            let mut rx = rx.resubscribe();
            async move { rx.recv().await.unwrap() }
        },
        || assert_eq!(tx.send(1).unwrap(), 6),
    );
    let (tx, rx) = watch::channel(1);
    neighbors_are_woken(
        || {
            let mut rx = rx.clone();
            async move { rx.changed().await.unwrap() }
        },
        || tx.send(2).unwrap(),
    );
    let (tx, rx) = watch::channel(1);
    neighbors_are_woken(|| tx.closed(), || drop(rx));
}

#[test]
fn a_channel_goes_on_despite_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let (tx, mut rx) = mpsc::channel(1);
        {
            let mut receives = pin!(rx.recv());
            assert!(poll(receives.as_mut(), &bad()).is_pending());
            tx.try_send(1).unwrap();
            assert_eq!(poll(receives, Waker::noop()), Poll::Ready(Some(1)));
        }
        tx.try_send(2).unwrap();
        neighbors_are_woken(|| tx.reserve(), || rx.close());
        let (tx, mut rx) = oneshot::channel();
        assert!(poll(Pin::new(&mut rx), &bad()).is_pending());
        tx.send(3).unwrap();
        assert_eq!(poll(Pin::new(&mut rx), Waker::noop()), Poll::Ready(Ok(3)));
    }
}

#[test]
fn a_lock_goes_to_the_next_despite_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let mutex = Mutex::new(0);
        let held = mutex.try_lock().unwrap();
        let (calls, good) = counting();
        let mut one = Box::pin(mutex.lock());
        let mut two = Box::pin(mutex.lock());
        assert!(poll(one.as_mut(), &bad()).is_pending());
        assert!(poll(two.as_mut(), &good).is_pending());
        drop(held);
        drop(one);
        assert_eq!(calls.count(), 1);
        assert!(poll(two.as_mut(), Waker::noop()).is_ready());
    }
}
