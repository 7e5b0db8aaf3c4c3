//! Ten thousand ready futures in a row, polled with a waker that does nothing: no budget may make
//! such a poll wait for a wake that does not come.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dapple_sync::sync::{Mutex, Notify, RwLock, Semaphore, Slot, broadcast, mpsc, oneshot, watch};

use crate::run;

const MANY: usize = if cfg!(miri) { 300 } else { 10_000 };

/// Must be ready at the first poll, both outside of a task and in one.
fn at_once(make: impl Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
    let mut future = pin!(make());
    assert_eq!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
    let mut future = make();
    run(1, async move { assert_eq!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(())) });
}

#[test]
fn channels() {
    at_once(|| {
        Box::pin(async {
            let (tx, mut rx) = mpsc::channel(MANY);
            let (free_tx, mut free_rx) = mpsc::unbounded_channel();
            let (all_tx, mut all_rx) = broadcast::channel(MANY);
            for n in 0..MANY {
                tx.send(n).await.expect("a receiver is left");
                free_tx.send(n).expect("a receiver is left");
                all_tx.send(n).expect("a receiver is left");
            }
            for n in 0..MANY {
                assert_eq!(rx.recv().await, Some(n));
                assert_eq!(free_rx.recv().await, Some(n));
                assert_eq!(all_rx.recv().await, Ok(n));
            }
            let (tx, mut rx) = watch::channel(0);
            for n in 0..MANY {
                tx.send(n).expect("a receiver is left");
                rx.changed().await.expect("the sender exists");
                let (tx, rx) = oneshot::channel();
                tx.send(n).expect("the receiver waits");
                assert_eq!(rx.await, Ok(n));
            }
        })
    });
}

#[test]
fn locks_and_slots() {
    at_once(|| {
        Box::pin(async {
            let (mutex, lock, semaphore, notify) = (Mutex::new(0), RwLock::new(0), Semaphore::new(1), Notify::new());
            let slot = Slot::empty();
            for n in 0..MANY {
                *mutex.lock().await += 1;
                *lock.write().await += 1;
                assert_eq!(*lock.read().await, n + 1);
                drop(semaphore.acquire().await.expect("the semaphore stays open"));
                notify.notify_one();
                notify.notified().await;
                slot.put(n).await;
                assert_eq!(slot.read().await, n);
                assert_eq!(slot.take().await, n);
            }
        })
    });
}
