//! Tasks: join, abort, detach, yield, wakes from everywhere.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use dapple_sched::{Color, Handle, spawn, yield_now};

use crate::support::{collector, runtime};

#[test]
fn a_join_handle_yields_the_result() {
    let runtime = runtime(2);
    assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
}

#[test]
fn a_detached_task_runs_on() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (tx, seen) = collector();
    drop(spawn(async move {
        yield_now().await;
        tx.send(1).unwrap();
    }));
    assert_eq!(seen.all(), [1]);
}

#[test]
fn an_aborted_task_says_so_and_a_finished_one_keeps_its_result() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let task = spawn(std::future::pending::<()>());
    assert!(!task.is_finished());
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_aborted());
    let mut task = spawn(async { 5 });
    runtime.block_on(async {
        while !task.is_finished() {
            yield_now().await;
        }
    });
    task.abort();
    assert_eq!(runtime.block_on(&mut task).unwrap(), 5);
    assert_eq!(Handle::current().stats().tasks_live, 0);
}

#[test]
fn wakes_from_other_threads_are_not_lost() {
    let runtime = runtime(2);
    let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
    let ready = Arc::new(AtomicUsize::new(0));
    let (inner_slot, inner_ready) = (slot.clone(), ready.clone());
    let task = runtime.spawn(async move {
        for n in 1..=2_000 {
            poll_fn(|cx| {
                *inner_slot.lock().unwrap() = Some(cx.waker().clone());
                if inner_ready.load(Ordering::Acquire) >= n { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    });
    let waker = std::thread::spawn(move || {
        for _ in 0..2_000 {
            ready.fetch_add(1, Ordering::Release);
            if let Some(waker) = slot.lock().unwrap().take() {
                waker.wake();
            }
        }
    });
    runtime.block_on(task).unwrap();
    waker.join().unwrap();
}

#[test]
fn many_tasks_on_one_color_and_on_many() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let shared = Color::new();
    let sum = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..2_000)
        .map(|n| {
            let sum = sum.clone();
            let task = async move {
                for _ in 0..5 {
                    yield_now().await;
                }
                sum.fetch_add(n, Ordering::Relaxed);
            };
            if n % 2 == 0 { shared.spawn(task) } else { spawn(task) }
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), (0..2_000).sum::<usize>());
}

#[test]
fn several_runtimes_in_one_process() {
    let (a, b) = (runtime(1), runtime(2));
    let from_b = b.handle().clone();
    let sum = a.block_on(a.spawn(async move { from_b.spawn(async { 20 }).await.unwrap() + 1 })).unwrap();
    assert_eq!(sum, 21);
    assert_eq!((a.handle().workers(), b.handle().workers()), (1, 2));
}
