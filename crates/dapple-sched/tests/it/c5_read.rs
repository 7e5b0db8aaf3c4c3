//! C5: a color held for reading.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::task::Poll;

use dapple_sched::{Colored, Runtime, TryWithError, spawn, when, yield_now};

use crate::support::{Gate, LONG, collector, occupy, runtime};

#[test]
fn c5_readers_of_one_color_run_in_parallel() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let state = Colored::new(7);
    // Three readers that wait for each other: they end only if they are inside at the same time.
    let barrier = Arc::new(Barrier::new(3));
    for eager in [false, true] {
        let (tx, seen) = collector();
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (state, barrier, tx) = (state.clone(), barrier.clone(), tx.clone());
                let read = move |n: &i32| {
                    barrier.wait();
                    tx.send(*n).unwrap();
                };
                if eager {
                    state.post_read(read);
                    None
                } else {
                    Some(spawn(async move { state.read(read).await }))
                }
            })
            .collect();
        drop(tx);
        assert_eq!(seen.all(), [7, 7, 7]);
        drop(tasks);
    }
}

#[test]
fn c5_readers_behind_a_writer_start_together() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    let barrier = Arc::new(Barrier::new(2));
    let (tx, seen) = collector();
    state.post(|n| *n = 1);
    for _ in 0..2 {
        let (tx, barrier) = (tx.clone(), barrier.clone());
        state.post_read(move |n| {
            barrier.wait();
            tx.send(*n).unwrap();
        });
    }
    state.post(|n| *n = 2);
    state.post_read(move |n| tx.send(*n).unwrap());
    gate.open();
    assert_eq!(seen.all(), [1, 1, 2]);
}

#[test]
fn c5_a_writer_is_alone() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let state = Colored::new(0u64);
    let (readers, writer) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (state, readers, writer) = (state.clone(), readers.clone(), writer.clone());
            spawn(async move {
                for round in 0..200 {
                    if (n + round) % 4 == 0 {
                        state
                            .with(|value| {
                                assert!(!writer.swap(true, SeqCst));
                                assert_eq!(readers.load(SeqCst), 0);
                                *value += 1;
                                writer.store(false, SeqCst);
                            })
                            .await;
                    } else {
                        state
                            .read(|_| {
                                readers.fetch_add(1, SeqCst);
                                assert!(!writer.load(SeqCst));
                                readers.fetch_sub(1, SeqCst);
                            })
                            .await;
                    }
                    if round % 8 == 0 {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(state.with_blocking(|value| *value), 16 * 50);
}

#[test]
fn c5_neither_side_starves() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let stop = Arc::new(AtomicBool::new(false));
    // Readers that overlap without end.
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (state, stop) = (state.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    state.read_blocking(|_| std::thread::yield_now());
                }
            })
        })
        .collect();
    for _ in 0..200 {
        state.with_blocking(|n| *n += 1);
    }
    stop.store(true, SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    // Writers that follow each other without end.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (state, stop) = (state.clone(), stop.clone());
        spawn(async move {
            while !stop.load(SeqCst) {
                state.with(|n| *n += 1).await;
                state.post(|n| *n += 1);
                yield_now().await;
            }
        })
    };
    for _ in 0..200 {
        assert!(state.read_blocking(|n| *n) >= 200);
    }
    stop.store(true, SeqCst);
    runtime.block_on(writer).unwrap();
}

#[test]
fn c5_in_line_reads() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(1);
    assert_eq!(state.try_read(|a| state.try_read(|b| *a + *b)), Ok(Ok(2)));
    assert_eq!(state.try_read(|_| state.try_with(|_| ())), Ok(Err(TryWithError::Busy)));
    assert_eq!(state.try_with(|_| state.try_read(|_| ())), Ok(Err(TryWithError::Busy)));
    let gate = occupy(state.color());
    assert_eq!(state.try_read(|_| ()), Err(TryWithError::Busy));
    gate.open();
    // A callback of the color holds it, and can read.
    let (tx, rx) = channel();
    let inside = state.clone();
    state.color().post(move || tx.send(inside.try_read(|n| *n)).unwrap());
    assert_eq!(rx.recv_timeout(LONG).unwrap(), Ok(1));
}

#[test]
fn c5_a_post_from_within_a_read_runs_after_it() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let poster = state.clone();
    state.read_blocking(|_| poster.post(|n| *n = 5));
    assert_eq!(state.with_blocking(|n| *n), 5);
}

#[test]
fn c5_a_panic_in_a_read_poisons_nothing() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(1);
    state.post_read(|_| panic!("only looked"));
    let inside = state.clone();
    let task = spawn(async move { inside.read(|_| panic!("only looked")).await });
    assert!(runtime.block_on(task).is_err());
    assert_eq!(state.with_blocking(|n| *n), 1);
}

#[test]
fn c5_reads_that_are_dropped_let_the_writer_in() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    for _ in 0..200 {
        let gate = occupy(state.color());
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let state = state.clone();
                spawn(async move { state.read(|n| *n).await })
            })
            .collect();
        gate.open();
        tasks.iter().for_each(|task| task.abort());
        for task in tasks {
            let _ = runtime.block_on(task);
        }
        state.with_blocking(|n| *n += 1);
    }
    assert_eq!(state.with_blocking(|n| *n), 200);
}

#[test]
fn c5_sets_read_and_write() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let table = Colored::new(vec![1u64; 8]);
    let totals: Vec<Colored<u64>> = (0..4).map(|_| Colored::new(0)).collect();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (table, total) = (table.clone(), totals[n % 4].clone());
            spawn(async move {
                for round in 0..100 {
                    if round % 10 == 9 {
                        table.with(|table| table[n] += 1).await;
                    } else if round % 2 == 0 {
                        when((table.reading(), &total)).with(|(table, total)| *total += table.len() as u64).await;
                    } else {
                        when((table.reading(), &total)).post(|(table, total)| *total += table.len() as u64);
                    }
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    let sum = when(&totals).with_blocking(|totals| totals.iter().map(|total| **total).sum::<u64>());
    assert_eq!(sum, 8 * 90 * 8);
    assert_eq!(table.read_blocking(|table| table.iter().sum::<u64>()), 8 + 80);
    // Only readers: two sets that overlap run at the same time.
    let barrier = Arc::new(Barrier::new(2));
    let (tx, seen) = collector();
    for _ in 0..2 {
        let (barrier, tx) = (barrier.clone(), tx.clone());
        when((table.reading(), totals[0].reading())).post(move |(table, total)| {
            barrier.wait();
            tx.send(table.len() as u64 + *total).unwrap();
        });
    }
    drop(tx);
    assert_eq!(seen.all().len(), 2);
}

#[test]
fn c5_shutdown_drops_reads_that_wait() {
    let runtime = runtime(2);
    let state = {
        let _entered = runtime.enter();
        Colored::new(0)
    };
    let gate = occupy(state.color());
    let (tx, seen) = collector::<()>();
    for _ in 0..10 {
        let tx = tx.clone();
        state.post_read(move |_| drop(tx));
    }
    drop(tx);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
    });
    drop(runtime);
    opener.join().unwrap();
    drop(state);
    seen.all();
}

#[test]
fn c5_a_reader_that_does_not_come_goes_as_a_reader() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    // Asks to read, and then polls another future.
    let (polled, polls) = channel();
    let absent = spawn({
        let state = state.clone();
        async move {
            let mut read = state.read(|_| ());
            let asked = poll_fn(|cx| Poll::Ready(Pin::new(&mut read).poll(cx).is_pending())).await;
            poll_fn(|_| {
                polled.send(asked).unwrap();
                Poll::<()>::Pending
            })
            .await;
        }
    });
    assert_eq!(polls.recv_timeout(LONG), Ok(true));
    let (tx, seen) = collector();
    let (inside, reader, writer) = (Gate::default(), tx.clone(), tx);
    let leave = inside.clone();
    state.post_read(move |_| {
        reader.send("in").unwrap();
        inside.wait();
        reader.send("out").unwrap();
    });
    state.post(move |_| writer.send("writer").unwrap());
    gate.open();
    // It was polled once more for its grant, which it has not used.
    assert_eq!(polls.recv_timeout(LONG), Ok(true));
    runtime.block_on(async {
        for _ in 0..100 {
            spawn(yield_now()).await.unwrap();
        }
    });
    leave.open();
    assert_eq!(seen.all(), ["in", "out", "writer"]);
    assert_eq!(state.with_blocking(|n| *n), 0);
    absent.abort();
}
