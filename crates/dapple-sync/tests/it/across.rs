//! Each type between tasks of different colors on two workers and a plain thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use dapple_sched::{block_on, spawn, yield_now};
use dapple_sync::sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, SetOnce, Slot, broadcast, mpsc, oneshot, watch,
};

use crate::{run, tasks_and_thread, thread};

const TASKS: usize = 8;
const ROUNDS: usize = if cfg!(miri) { 10 } else { 500 };

#[test]
fn mutex() {
    run(2, async {
        let sum = Arc::new(Mutex::new(0));
        let (ours, theirs) = (sum.clone(), sum.clone());
        let task = move |_| {
            let sum = ours.clone();
            async move {
                for _ in 0..ROUNDS {
                    let mut sum = sum.lock().await;
                    let old = *sum;
                    yield_now().await; // still locked
                    *sum = old + 1;
                }
            }
        };
        tasks_and_thread(TASKS, task, move || (0..ROUNDS).for_each(|_| *theirs.blocking_lock() += 1)).await;
        assert_eq!(*sum.lock().await, (TASKS + 1) * ROUNDS);
    });
}

#[test]
fn rw_lock() {
    run(2, async {
        let pair = Arc::new(RwLock::new((0, 0)));
        let (ours, theirs) = (pair.clone(), pair.clone());
        let task = move |index| {
            let pair = ours.clone();
            async move {
                for _ in 0..ROUNDS {
                    if index % 2 == 0 {
                        let pair = pair.read().await;
                        yield_now().await;
                        assert_eq!(pair.0, pair.1);
                    } else {
                        let mut pair = pair.write().await;
                        pair.0 += 1;
                        yield_now().await;
                        pair.1 += 1;
                    }
                }
            }
        };
        let work = move || {
            for _ in 0..ROUNDS {
                let mut pair = theirs.blocking_write();
                pair.0 += 1;
                pair.1 += 1;
                drop(pair);
                let pair = theirs.blocking_read();
                assert_eq!(pair.0, pair.1);
            }
        };
        tasks_and_thread(TASKS, task, work).await;
        assert_eq!(*pair.read().await, ((TASKS / 2 + 1) * ROUNDS, (TASKS / 2 + 1) * ROUNDS));
    });
}

#[test]
fn notify() {
    run(2, async {
        // Each round needs one notification of one of the two notifiers, which wait for each
        // other's round.
        let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let player = spawn({
            let (there, back) = (there.clone(), back.clone());
            async move {
                for _ in 0..2 * ROUNDS {
                    there.notified().await;
                    back.notify_one();
                }
            }
        });
        let play = {
            let (there, back) = (there.clone(), back.clone());
            move || {
                for _ in 0..ROUNDS {
                    there.notify_one();
                    block_on(back.notified());
                }
            }
        };
        thread(play).await;
        for _ in 0..ROUNDS {
            there.notify_one();
            back.notified().await;
        }
        player.await.expect("the task does not panic");
    });
}

#[test]
fn semaphore() {
    run(2, async {
        let inside = Arc::new((Semaphore::new(3), AtomicUsize::new(0)));
        let (ours, theirs) = (inside.clone(), inside.clone());
        let task = move |_| {
            let inside = ours.clone();
            async move {
                for _ in 0..ROUNDS {
                    let _permit = inside.0.acquire().await.expect("the semaphore stays open");
                    assert!(inside.1.fetch_add(1, SeqCst) < 3);
                    yield_now().await;
                    inside.1.fetch_sub(1, SeqCst);
                }
            }
        };
        let work = move || {
            for _ in 0..ROUNDS {
                let _permit = block_on(theirs.0.acquire()).expect("the semaphore stays open");
                assert!(theirs.1.fetch_add(1, SeqCst) < 3);
                theirs.1.fetch_sub(1, SeqCst);
            }
        };
        tasks_and_thread(TASKS, task, work).await;
        assert_eq!(inside.0.available_permits(), 3);
    });
}

#[test]
fn barrier() {
    run(2, async {
        let meeting = Arc::new((Barrier::new(TASKS + 1), AtomicUsize::new(0), AtomicUsize::new(0)));
        let (ours, theirs) = (meeting.clone(), meeting.clone());
        let task = move |_| {
            let meeting = ours.clone();
            async move {
                for round in 0..ROUNDS {
                    meeting.1.fetch_add(1, SeqCst);
                    if meeting.0.wait().await.is_leader() {
                        meeting.2.fetch_add(1, SeqCst);
                    }
                    assert!(meeting.1.load(SeqCst) >= (round + 1) * (TASKS + 1));
                }
            }
        };
        let work = move || {
            for _ in 0..ROUNDS {
                theirs.1.fetch_add(1, SeqCst);
                if block_on(theirs.0.wait()).is_leader() {
                    theirs.2.fetch_add(1, SeqCst);
                }
            }
        };
        tasks_and_thread(TASKS, task, work).await;
        assert_eq!(meeting.2.load(SeqCst), ROUNDS, "each round has one leader");
    });
}

#[test]
fn once_cell() {
    run(2, async {
        for _ in 0..50 {
            let cell = Arc::new((OnceCell::new(), AtomicUsize::new(0)));
            let (ours, theirs) = (cell.clone(), cell.clone());
            let task = move |index| {
                let cell = ours.clone();
                async move {
                    let make = || async {
                        yield_now().await;
                        cell.1.fetch_add(1, SeqCst);
                        index
                    };
                    let found = *cell.0.get_or_init(make).await;
                    assert_eq!(cell.0.get(), Some(&found));
                }
            };
            let work = move || {
                let make = || async {
                    theirs.1.fetch_add(1, SeqCst);
                    TASKS
                };
                block_on(theirs.0.get_or_init(make));
            };
            tasks_and_thread(TASKS, task, work).await;
            assert_eq!(cell.1.load(SeqCst), 1, "made once");
        }
    });
}

#[test]
fn set_once() {
    run(2, async {
        let cell = Arc::new(SetOnce::new());
        let (ours, theirs) = (cell.clone(), cell.clone());
        let waiters: Vec<_> =
            (0..TASKS).map(|_| cell.clone()).map(|cell| spawn(async move { *cell.wait().await })).collect();
        let thread = thread(move || *block_on(theirs.wait()));
        spawn(async move { ours.set(7) }).await.expect("the task does not panic").expect("set once");
        assert_eq!(thread.await, 7);
        for waiter in waiters {
            assert_eq!(waiter.await.expect("the task does not panic"), 7);
        }
        assert!(cell.set(8).is_err());
    });
}

#[test]
fn mpsc_bounded_and_not() {
    run(2, async {
        let (tx, mut rx) = mpsc::channel(3);
        let (free_tx, mut free_rx) = mpsc::unbounded_channel();
        let (ours, theirs, free_ours, free_theirs) = (tx.clone(), tx, free_tx.clone(), free_tx);
        // The plain thread receives too, from its own channel.
        let (back_tx, mut back_rx) = mpsc::channel(3);
        let receiver = spawn(async move {
            let (mut sum, mut last) = (0, [0; TASKS + 1]);
            while let Some((sender, n)) = rx.recv().await {
                assert!(n > last[sender], "values of one sender stay in order");
                last[sender] = n;
                sum += n;
            }
            while let Some(n) = free_rx.recv().await {
                sum += n;
            }
            back_tx.send(sum).await.expect("the thread receives");
        });
        let task = |sender: usize| {
            let (tx, free) = (ours.clone(), free_ours.clone());
            async move {
                for n in 1..=ROUNDS {
                    tx.send((sender, n)).await.expect("a receiver is left");
                    free.send(n).expect("a receiver is left");
                }
            }
        };
        let work = move || {
            for n in 1..=ROUNDS {
                theirs.blocking_send((TASKS, n)).expect("a receiver is left");
                free_theirs.send(n).expect("a receiver is left");
            }
        };
        tasks_and_thread(TASKS, task, work).await;
        drop((ours, free_ours));
        let sum = thread(move || back_rx.blocking_recv()).await;
        assert_eq!(sum, Some(2 * (TASKS + 1) * ROUNDS * (ROUNDS + 1) / 2));
        receiver.await.expect("the task does not panic");
    });
}

#[test]
fn oneshot_there_and_back() {
    run(2, async {
        for n in 0..ROUNDS {
            let (tx, rx) = oneshot::channel();
            let (back_tx, back_rx) = oneshot::channel();
            let task = spawn(async move { back_tx.send(rx.await.expect("the value is sent") + 1) });
            if n % 16 == 0 {
                let answer = thread(move || {
                    tx.send(n).expect("the task waits");
                    back_rx.blocking_recv()
                });
                assert_eq!(answer.await, Ok(n + 1));
            } else {
                spawn(async move { tx.send(n) });
                assert_eq!(back_rx.await, Ok(n + 1));
            }
            task.await.expect("the task does not panic").expect("the receiver waits");
        }
    });
}

#[test]
fn broadcast_to_all() {
    run(2, async {
        let (tx, mut rx) = broadcast::channel(ROUNDS);
        let receivers: Vec<_> = (0..TASKS)
            .map(|_| {
                let mut rx = tx.subscribe();
                spawn(async move {
                    let mut sum = 0;
                    while let Ok(n) = rx.recv().await {
                        sum += n;
                    }
                    sum
                })
            })
            .collect();
        let thread = thread(move || {
            let mut sum = 0;
            while let Ok(n) = rx.blocking_recv() {
                sum += n;
            }
            sum
        });
        let sender = spawn(async move {
            for n in 1..=ROUNDS {
                tx.send(n).expect("there are receivers");
                yield_now().await;
            }
        });
        let expected = ROUNDS * (ROUNDS + 1) / 2;
        assert_eq!(thread.await, expected);
        for receiver in receivers {
            assert_eq!(receiver.await.expect("the task does not panic"), expected);
        }
        sender.await.expect("the task does not panic");
    });
}

#[test]
fn watch_the_latest() {
    run(2, async {
        let (tx, rx) = watch::channel(0);
        let ours = rx.clone();
        let task = move |_| {
            let mut rx = ours.clone();
            async move {
                let mut last = 0;
                while rx.changed().await.is_ok() {
                    let now = *rx.borrow_and_update();
                    assert!(now >= last);
                    last = now;
                }
                assert_eq!(*rx.borrow(), ROUNDS);
            }
        };
        let mut theirs = rx;
        let work = move || assert_eq!(*block_on(theirs.wait_for(|n| *n == ROUNDS)).expect("the value is sent"), ROUNDS);
        let sender = spawn(async move {
            for n in 1..=ROUNDS {
                tx.send(n).expect("there are receivers");
                yield_now().await;
            }
        });
        tasks_and_thread(TASKS, task, work).await;
        sender.await.expect("the task does not panic");
    });
}

#[test]
fn slot() {
    run(2, async {
        let slot = Arc::new(Slot::empty());
        let (ours, theirs, taken) = (slot.clone(), slot.clone(), slot);
        let taker = spawn(async move {
            let mut sum = 0;
            for _ in 0..(TASKS + 1) * ROUNDS {
                sum += taken.take().await;
            }
            sum
        });
        let task = move |_| {
            let slot = ours.clone();
            async move {
                for n in 1..=ROUNDS {
                    slot.put(n).await;
                }
            }
        };
        tasks_and_thread(TASKS, task, move || (1..=ROUNDS).for_each(|n| theirs.put_blocking(n))).await;
        assert_eq!(taker.await.expect("the task does not panic"), (TASKS + 1) * ROUNDS * (ROUNDS + 1) / 2);
    });
}
