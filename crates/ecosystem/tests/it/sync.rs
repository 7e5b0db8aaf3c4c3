//! `tokio::sync` between tasks of different colors, and between tasks of one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple::{Color, JoinHandle};
use tokio::sync::{Barrier, Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

use crate::{assert_no_tokio, run};

/// How the tasks of a test are started: each with a color of its own, or all with one.
#[derive(Clone)]
struct Tasks {
    color: Option<Color>,
}

impl Tasks {
    fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let checked = async {
            assert_no_tokio();
            task.await
        };
        match &self.color {
            Some(color) => color.spawn(checked),
            None => dapple::spawn(checked),
        }
    }

    async fn join<T: Send + 'static>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.unwrap());
        }
        results
    }
}

/// Runs a test on one worker and on four, with a color for each task and with one for all.
fn everywhere<F: Future<Output = ()> + Send>(test: impl Fn(Tasks) -> F + Copy + Send + 'static) {
    for workers in [1, 4] {
        for of_one_color in [false, true] {
            run(workers, async move { test(Tasks { color: of_one_color.then(Color::new) }).await });
        }
    }
}

/// Counts the tasks inside, and their maximum.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    async fn visit(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..3 {
            dapple::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_mutex_is_held_across_await() {
    everywhere(async |tasks: Tasks| {
        let (total, inside) = (Arc::new(Mutex::new(0)), Arc::new(Inside::default()));
        let adding = (0..20).map(|_| {
            let (total, inside) = (total.clone(), inside.clone());
            tasks.spawn(async move {
                for _ in 0..10 {
                    let mut total = total.lock().await;
                    let before = *total;
                    inside.visit().await;
                    *total = before + 1;
                }
            })
        });
        Tasks::join(adding.collect()).await;
        assert_eq!((*total.lock().await, inside.most.load(Ordering::SeqCst)), (200, 1));
    });
}

#[test]
fn a_lock_has_many_readers_or_one_writer() {
    everywhere(async |tasks: Tasks| {
        let pair = Arc::new(RwLock::new((0, 0)));
        let together = Arc::new(Barrier::new(4));
        let mut all = Vec::new();
        for _ in 0..4 {
            let (pair, together) = (pair.clone(), together.clone());
            all.push(tasks.spawn(async move {
                let read = pair.read().await;
                // All four hold it, or no task passes this point.
                together.wait().await;
                assert_eq!(*read, (0, 0));
            }));
        }
        Tasks::join(all).await;
        let writing = (0..10).map(|_| {
            let pair = pair.clone();
            tasks.spawn(async move {
                let mut pair = pair.write().await;
                pair.0 += 1;
                dapple::yield_now().await;
                pair.1 += 1;
                assert_eq!(pair.0, pair.1);
            })
        });
        Tasks::join(writing.collect()).await;
        assert_eq!(*pair.read().await, (10, 10));
    });
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_has_permits() {
    everywhere(async |tasks: Tasks| {
        let (slots, inside) = (Arc::new(Semaphore::new(3)), Arc::new(Inside::default()));
        let visits = (0..30).map(|_| {
            let (slots, inside) = (slots.clone(), inside.clone());
            tasks.spawn(async move {
                let _slot = slots.acquire().await.unwrap();
                inside.visit().await;
            })
        });
        Tasks::join(visits.collect()).await;
        assert!((1..=3).contains(&inside.most.load(Ordering::SeqCst)));
        assert_eq!(slots.available_permits(), 3);
    });
}

#[test]
fn a_bounded_channel_makes_its_senders_wait() {
    everywhere(async |tasks: Tasks| {
        let (tx, mut rx) = mpsc::channel(2);
        let sent = Arc::new(AtomicUsize::new(0));
        let sending = (0..4).map(|sender| {
            let (tx, sent) = (tx.clone(), sent.clone());
            tasks.spawn(async move {
                for number in 0..25 {
                    tx.send((sender, number)).await.unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let sending: Vec<_> = sending.collect();
        drop(tx);
        let mut next = [0; 4];
        let mut taken = 0;
        while let Some((sender, number)) = rx.recv().await {
            taken += 1;
            assert_eq!(number, next[sender], "each sender's numbers come in order");
            next[sender] += 1;
            // Two are in the channel, and the received ones were sent.
            assert!(sent.load(Ordering::SeqCst) <= taken + 2);
            dapple::yield_now().await;
        }
        Tasks::join(sending).await;
        assert_eq!(next, [25; 4]);
    });
}

#[test]
fn a_watch_shows_the_latest_value_to_all() {
    everywhere(async |tasks: Tasks| {
        let (tx, rx) = watch::channel(0);
        let watching = (0..5).map(|_| {
            let mut rx = rx.clone();
            tasks.spawn(async move {
                let mut last = 0;
                while rx.changed().await.is_ok() {
                    let now = *rx.borrow_and_update();
                    assert!(now > last, "{now} after {last}");
                    last = now;
                }
                last
            })
        });
        let watching: Vec<_> = watching.collect();
        drop(rx);
        for number in 1..=50 {
            tx.send(number).unwrap();
            dapple::yield_now().await;
        }
        drop(tx);
        assert_eq!(Tasks::join(watching).await, [50; 5]);
    });
}

#[test]
fn a_broadcast_reaches_all_and_reports_late_receivers() {
    everywhere(async |tasks: Tasks| {
        let (tx, mut late) = broadcast::channel(4);
        let listening = (0..3).map(|_| {
            let mut rx = tx.subscribe();
            tasks.spawn(async move {
                let mut heard = Vec::new();
                while heard.len() < 4 {
                    heard.push(rx.recv().await.unwrap());
                }
                heard
            })
        });
        let listening: Vec<_> = listening.collect();
        for number in 0..4 {
            tx.send(number).unwrap();
        }
        assert!(Tasks::join(listening).await.iter().all(|heard| *heard == [0, 1, 2, 3]));
        tx.send(4).unwrap();
        assert!(matches!(late.recv().await, Err(broadcast::error::RecvError::Lagged(1))));
        assert_eq!(late.recv().await.unwrap(), 1);
    });
}

#[test]
fn a_notification_and_an_answer_wake_a_task() {
    everywhere(async |tasks: Tasks| {
        let bell = Arc::new(Notify::new());
        let (tx, rx) = oneshot::channel();
        let waiting = tasks.spawn({
            let bell = bell.clone();
            async move {
                bell.notified().await;
                tx.send("rang").unwrap();
            }
        });
        bell.notify_one();
        assert_eq!(rx.await, Ok("rang"));
        waiting.await.unwrap();
        let (tx, rx) = oneshot::channel::<()>();
        tasks.spawn(async move { drop(tx) }).await.unwrap();
        assert!(rx.await.is_err());
    });
}

/// A task that is ended while it waits gives up its position, and the next one comes in.
#[test]
fn a_task_that_is_aborted_leaves_no_lock_behind() {
    everywhere(async |tasks: Tasks| {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone().lock_owned().await;
        let waiting = (0..3).map(|_| {
            let lock = lock.clone();
            tasks.spawn(async move { drop(lock.lock().await) })
        });
        let waiting: Vec<_> = waiting.collect();
        waiting[0].abort();
        waiting[1].abort();
        drop(held);
        let mut finished = 0;
        for task in waiting {
            finished += u32::from(task.await.is_ok());
        }
        assert_eq!(finished, 1);
        assert!(lock.try_lock().is_ok());
    });
}
