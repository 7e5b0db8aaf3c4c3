//! `retry`: its waiters, its wake-ups, and its traces.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use dapple_stm::{StmResult, TVar, Tx, atomically, atomically_blocking};

use crate::support::{counting, runtime};

/// A bounded queue between tasks.
#[derive(Clone)]
struct Queue {
    items: TVar<Arc<VecDeque<u64>>>,
    capacity: usize,
}

impl Queue {
    fn push(&self, tx: &mut Tx, item: u64) -> StmResult<()> {
        let mut items = tx.read(&self.items)?;
        tx.check(items.len() < self.capacity)?;
        Arc::make_mut(&mut items).push_back(item);
        tx.write(&self.items, items)
    }

    fn pop(&self, tx: &mut Tx) -> StmResult<u64> {
        let mut items = tx.read(&self.items)?;
        let item = Arc::make_mut(&mut items).pop_front();
        tx.write(&self.items, items)?;
        item.map_or_else(|| tx.retry(), Ok)
    }
}

#[test]
fn a_bounded_queue_passes_everything_on_in_order() {
    const ITEMS: u64 = crate::support::rounds(5_000) as u64;
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let queue = Queue { items: TVar::default(), capacity: 3 };
        let from = queue.clone();
        let consumer = runtime.spawn(async move {
            for expected in 0..ITEMS {
                assert_eq!(atomically(|tx| from.pop(tx)).await, expected);
            }
        });
        let producer = runtime.spawn(async move {
            for item in 0..ITEMS {
                atomically(|tx| queue.push(tx, item)).await;
            }
        });
        runtime.block_on(producer).unwrap();
        runtime.block_on(consumer).unwrap();
    }
}

#[test]
fn a_queue_between_threads_and_tasks() {
    const ITEMS: u64 = crate::support::rounds(2_000) as u64;
    let runtime = runtime(1);
    let (there, back) = (Queue { items: TVar::default(), capacity: 2 }, Queue { items: TVar::default(), capacity: 2 });
    let (from, to) = (there.clone(), back.clone());
    let echo = runtime.spawn(async move {
        for _ in 0..ITEMS {
            let item = atomically(|tx| from.pop(tx)).await;
            atomically(|tx| to.push(tx, item + 1)).await;
        }
    });
    thread::scope(|threads| {
        threads.spawn(|| (0..ITEMS).for_each(|item| atomically_blocking(|tx| there.push(tx, item))));
        (0..ITEMS).for_each(|item| assert_eq!(atomically_blocking(|tx| back.pop(tx)), item + 1));
    });
    runtime.block_on(echo).unwrap();
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_has() {
    let runtime = runtime(2);
    let (free, inside) = (TVar::new(3), TVar::new(0));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (free, inside) = (free.clone(), inside.clone());
            runtime.spawn(async move {
                for _ in 0..20 {
                    atomically(|tx| {
                        let now = tx.read(&free)?;
                        tx.check(now > 0)?;
                        tx.write(&free, now - 1)
                    })
                    .await;
                    let crowd = atomically(|tx| {
                        let crowd = tx.read(&inside)? + 1;
                        tx.write(&inside, crowd)?;
                        Ok(crowd)
                    })
                    .await;
                    assert!(crowd <= 3);
                    dapple_sched::yield_now().await;
                    atomically(|tx| {
                        tx.modify(&inside, |crowd| crowd - 1)?;
                        tx.modify(&free, |free| free + 1)
                    })
                    .await;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    assert_eq!((free.load(), inside.load()), (3, 0));
}

/// The only worker does other work while a task waits, and that work wakes the task.
#[test]
fn a_task_that_waits_leaves_its_worker_to_others() {
    let runtime = runtime(1);
    let door = TVar::new(false);
    let (outside, inside) = (door.clone(), door.clone());
    let waiting = runtime.spawn(async move {
        atomically(|tx| {
            let open = tx.read(&outside)?;
            tx.check(open)
        })
        .await
    });
    while door.waiters() == 0 {
        thread::yield_now();
    }
    let opening = runtime.spawn(async move {
        for _ in 0..10 {
            dapple_sched::yield_now().await;
        }
        atomically(|tx| tx.write(&inside, true)).await;
    });
    runtime.block_on(opening).unwrap();
    runtime.block_on(waiting).unwrap();
    assert_eq!(door.waiters(), 0);
}

#[test]
fn only_a_change_of_what_was_read_wakes() {
    let (read, other) = (TVar::new(0), TVar::new(0));
    let (count, waker) = counting();
    let mut cx = Context::from_waker(&waker);
    let mut wait = pin!(atomically(|tx| {
        let now = tx.read(&read)?;
        tx.write(&other, 9)?;
        tx.check(now > 0)
    }));
    assert_eq!(wait.as_mut().poll(&mut cx), Poll::Pending);
    assert_eq!((read.waiters(), other.waiters()), (1, 0));
    atomically_blocking(|tx| tx.write(&other, 1));
    assert_eq!((count.woken(), other.load()), (0, 1));
    atomically_blocking(|tx| tx.write(&read, 1));
    assert_eq!(count.woken(), 1);
    assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(()));
    assert_eq!((read.waiters(), other.load()), (0, 9));
}

#[test]
fn a_canceled_wait_leaves_no_trace() {
    let (a, b) = (TVar::new(0), TVar::new(0));
    let (count, waker) = counting();
    for _ in 0..1_000 {
        let mut wait = Box::pin(atomically(|tx| {
            let sum = tx.read(&a)? + tx.read(&b)?;
            tx.write(&b, 5)?;
            tx.check(sum > 0)
        }));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!((a.waiters(), b.waiters(), b.load()), (0, 0, 0));
    atomically_blocking(|tx| tx.write(&a, 1));
    assert_eq!(count.woken(), 0);
}

/// Waiting for a variable that never changes costs no memory beyond the wait, any number of times.
#[test]
fn a_variable_is_waited_for_a_million_times() {
    let var = TVar::new(0);
    let (_, waker) = counting();
    let mut cx = Context::from_waker(&waker);
    for _ in 0..crate::support::rounds(1_000_000) {
        let mut wait = pin!(atomically(|tx| {
            tx.read(&var)?;
            tx.retry::<()>()
        }));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(var.waiters(), 0);
    drop(waker);
}

#[test]
#[cfg_attr(miri, ignore = "this many take hours")]
fn a_hundred_thousand_waiters_are_freed() {
    let runtime = runtime(2);
    let (door, through) = (TVar::new(false), TVar::new(0_u64));
    let tasks: Vec<_> = (0..100_000)
        .map(|_| {
            let (door, through) = (door.clone(), through.clone());
            runtime.spawn(async move {
                atomically(|tx| {
                    let open = tx.read(&door)?;
                    tx.check(open)?;
                    tx.modify(&through, |through| through + 1)
                })
                .await
            })
        })
        .collect();
    while door.waiters() < 100_000 {
        thread::yield_now();
    }
    atomically_blocking(|tx| tx.write(&door, true));
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    assert_eq!((door.waiters(), through.waiters(), through.load()), (0, 0, 100_000));
}

#[test]
#[cfg_attr(miri, ignore = "this many take hours")]
fn a_hundred_thousand_waiters_are_canceled() {
    let runtime = runtime(2);
    let door = TVar::new(false);
    let tasks: Vec<_> = (0..100_000)
        .map(|_| {
            let door = door.clone();
            runtime.spawn(async move {
                atomically(|tx| {
                    let open = tx.read(&door)?;
                    tx.check(open)
                })
                .await
            })
        })
        .collect();
    while door.waiters() < 100_000 {
        thread::yield_now();
    }
    tasks.iter().for_each(|task| task.abort());
    tasks.into_iter().for_each(|task| assert!(runtime.block_on(task).is_err()));
    assert_eq!(door.waiters(), 0);
}

#[test]
fn now_does_not_wait() {
    let free = TVar::new(1);
    let take = || {
        atomically(|tx| {
            let now = tx.read(&free)?;
            tx.check(now > 0)?;
            tx.write(&free, now - 1)
        })
        .now()
    };
    assert_eq!((take(), take()), (Some(()), None));
    assert_eq!((free.load(), free.waiters()), (0, 0));
}
