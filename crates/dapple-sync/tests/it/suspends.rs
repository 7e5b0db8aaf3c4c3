//! With a single worker: a wait suspends its task, so that the task that ends the wait gets the
//! worker.

use std::future::Future;
use std::sync::Arc;

use dapple_sched::{spawn, yield_now};
use dapple_sync::sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, SetOnce, Slot, broadcast, mpsc, oneshot, watch,
};

use crate::run;

/// Starts a task that waits, lets it reach its wait, and then ends the wait from another color.
fn suspends<W, E>(waits: W, ends: E)
where
    W: Future + Send + 'static,
    E: Future + Send + 'static,
{
    run(1, async {
        let waiter = spawn(async move {
            waits.await;
        });
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(!waiter.is_finished(), "there was nothing to wait for");
        let ender = spawn(async move {
            ends.await;
        });
        waiter.await.expect("the task does not panic");
        ender.await.expect("the task does not panic");
    });
}

#[test]
fn locks() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.clone().try_lock_owned().expect("the lock is free");
    suspends(async move { drop(mutex.lock().await) }, async move { drop(guard) });

    let lock = Arc::new(RwLock::new(()));
    let guard = lock.clone().try_write_owned().expect("the lock is free");
    suspends(async move { drop(lock.read().await) }, async move { drop(guard) });

    let lock = Arc::new(RwLock::new(()));
    let guard = lock.clone().try_read_owned().expect("the lock is free");
    suspends(async move { drop(lock.write().await) }, async move { drop(guard) });

    let semaphore = Arc::new(Semaphore::new(0));
    let ours = semaphore.clone();
    suspends(async move { semaphore.acquire().await.expect("the semaphore stays open").forget() }, async move {
        ours.add_permits(1)
    });
}

#[test]
fn meetings() {
    let notify = Arc::new(Notify::new());
    let ours = notify.clone();
    suspends(async move { notify.notified().await }, async move { ours.notify_waiters() });

    let barrier = Arc::new(Barrier::new(2));
    let ours = barrier.clone();
    suspends(async move { barrier.wait().await }, async move { ours.wait().await });

    let (cell, (tx, rx)) = (Arc::new(OnceCell::new()), oneshot::channel());
    suspends(async move { cell.get_or_init(|| rx).await.is_ok() }, async move { tx.send(7) });

    let cell = Arc::new(SetOnce::new());
    let ours = cell.clone();
    suspends(async move { *cell.wait().await }, async move { ours.set(7) });
}

#[test]
fn channels() {
    let (tx, mut rx) = mpsc::channel(1);
    suspends(async move { rx.recv().await }, async move { tx.send(7).await });

    let (tx, mut rx) = mpsc::channel(1);
    tx.try_send(6).expect("the channel has room");
    suspends(async move { tx.send(7).await }, async move { (rx.recv().await, rx.recv().await) });

    let (tx, mut rx) = mpsc::unbounded_channel();
    suspends(async move { rx.recv().await }, async move { tx.send(7) });

    let (tx, rx) = oneshot::channel();
    suspends(rx, async move { tx.send(7) });

    let (tx, mut rx) = broadcast::channel(1);
    suspends(async move { rx.recv().await }, async move { tx.send(7) });

    let (tx, mut rx) = watch::channel(0);
    suspends(async move { rx.changed().await }, async move { tx.send(7) });
}

#[test]
fn slots() {
    let slot = Arc::new(Slot::empty());
    let ours = slot.clone();
    suspends(async move { slot.take().await }, async move { ours.put(7).await });

    let slot = Arc::new(Slot::empty());
    let ours = slot.clone();
    suspends(async move { slot.read().await }, async move { ours.put(7).await });

    let slot = Arc::new(Slot::new(6));
    let ours = slot.clone();
    suspends(async move { slot.put(7).await }, async move { ours.take().await });
}
