//! C7: a future that is always ready yields from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dapple_sched::spawn;
use dapple_sync::sync::{Mutex, Notify, RwLock, Semaphore, Slot, broadcast, mpsc, oneshot, watch};

use crate::runtime;

/// More rounds than any budget has.
const MANY: usize = 10_000;

#[test]
fn c7_locks_let_others_go() {
    let mutex = Mutex::new(0);
    lets_others_go!("a mutex", { *mutex.lock().await += 1 });
    let lock = RwLock::new(0);
    lets_others_go!("a lock that is read", { assert_eq!(*lock.read().await, 0) });
    let lock = RwLock::new(0);
    lets_others_go!("a lock that is written", { *lock.write().await += 1 });
    let mutex = Arc::new(Mutex::new(0));
    lets_others_go!("a mutex of an `Arc`", { *mutex.clone().lock_owned().await += 1 });
    let lock = Arc::new(RwLock::new(0));
    lets_others_go!("a lock of an `Arc`", {
        *lock.clone().write_owned().await += 1;
        assert!(*lock.clone().read_owned().await > 0);
    });
    let semaphore = Semaphore::new(2);
    lets_others_go!("a semaphore", { drop(semaphore.acquire().await.unwrap()) });
    let semaphore = Arc::new(Semaphore::new(2));
    lets_others_go!("owned permits", { drop(semaphore.clone().acquire_many_owned(2).await.unwrap()) });
    let notify = Notify::new();
    lets_others_go!("a notify", {
        notify.notify_one();
        notify.notified().await;
    });
    let slot = Slot::empty();
    lets_others_go!("a slot", {
        slot.put(1).await;
        slot.take().await;
    });
}

#[test]
fn c7_channels_let_others_go() {
    let (tx, mut rx) = mpsc::channel(10);
    lets_others_go!("mpsc", {
        tx.send(1).await.unwrap();
        rx.recv().await.unwrap();
    });
    let (tx, rx) = mpsc::channel::<()>(10);
    drop(rx);
    lets_others_go!("a closed channel", {
        tx.send(()).await.unwrap_err();
    });
    let (tx, mut rx) = mpsc::unbounded_channel();
    lets_others_go!("unbounded mpsc", {
        tx.send(1).unwrap();
        rx.recv().await.unwrap();
    });
    lets_others_go!("oneshot", {
        let (tx, rx) = oneshot::channel();
        tx.send(1).unwrap();
        rx.await.unwrap();
    });
    let (tx, mut rx) = broadcast::channel(10);
    lets_others_go!("broadcast", {
        tx.send(1).unwrap();
        rx.recv().await.unwrap();
    });
    let (tx, mut rx) = watch::channel(1);
    lets_others_go!("watch", {
        tx.send(1).unwrap();
        rx.changed().await.unwrap();
    });
    let (_tx, mut rx) = watch::channel(1);
    lets_others_go!("watch, for an available value", { assert_eq!(*rx.wait_for(|_| true).await.unwrap(), 1) });
}

#[test]
fn permits_of_their_own_are_merged_split_and_given_back() {
    let semaphore = Arc::new(Semaphore::new(5));
    let mut three = semaphore.clone().try_acquire_many_owned(3).unwrap();
    assert!(semaphore.clone().try_acquire_many_owned(3).is_err());
    let one = semaphore.clone().try_acquire_owned().unwrap();
    three.merge(one);
    assert_eq!((three.num_permits(), semaphore.available_permits()), (4, 1));
    assert!(three.split(5).is_none());
    let two = three.split(2).unwrap();
    assert!(Arc::ptr_eq(two.semaphore(), &semaphore));
    two.forget();
    drop(three);
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn guards_keep_what_they_lock_alive() {
    let mutex: Arc<Mutex<[u32]>> = Arc::new(Mutex::new([1, 2, 3]));
    let lock = Arc::new(RwLock::new(String::from("kept")));
    let notify = Arc::new(Notify::new());
    let (guard, read) = (mutex.clone().try_lock_owned().unwrap(), lock.clone().try_read_owned().unwrap());
    assert!(mutex.try_lock().is_err() && lock.clone().try_write_owned().is_err());
    let mut news = Box::pin(notify.clone().notified_owned());
    assert!(!news.as_mut().enable());
    assert_eq!((Arc::strong_count(&mutex), Arc::strong_count(&lock), Arc::strong_count(&notify)), (2, 2, 2));
    notify.notify_waiters();
    drop((mutex, lock, notify));
    dapple_sched::block_on(news);
    assert_eq!((guard.len(), read.as_str()), (3, "kept"));
}
