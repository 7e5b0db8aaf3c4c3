//! Shutdown: graceful with a deadline, and at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dapple_sched::{Colored, Handle, PostError, Runtime, spawn, yield_now};

use crate::support::{LONG, occupy, runtime};

struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_graceful_shutdown_finishes_what_was_accepted() {
    let runtime = runtime(2);
    let ran = Arc::new(AtomicUsize::new(0));
    {
        let _entered = runtime.enter();
        for _ in 0..1_000 {
            let ran = ran.clone();
            drop(spawn(async move {
                yield_now().await;
                ran.fetch_add(1, Ordering::Relaxed);
            }));
        }
    }
    let report = runtime.shutdown(LONG);
    assert_eq!(ran.load(Ordering::Relaxed), 1_000);
    assert_eq!((report.tasks_dropped, report.callbacks_dropped, report.workers_stuck), (0, 0, 0));
}

#[test]
fn tasks_hear_of_a_shutdown() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let handle = Handle::current();
    let task = spawn(async move {
        handle.closing().await;
        "closed"
    });
    drop(_entered);
    let report = runtime.shutdown(LONG);
    assert_eq!(report.tasks_dropped, 0);
    assert_eq!(dapple_sched::block_on(task).unwrap(), "closed");
}

#[test]
fn the_rest_at_the_deadline_is_dropped_and_reported() {
    let runtime = runtime(2);
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    {
        let _entered = runtime.enter();
        for _ in 0..10 {
            let count = Count(dropped.clone());
            tasks.push(spawn(async move {
                std::future::pending::<()>().await;
                drop(count);
            }));
        }
    }
    let started = Instant::now();
    let report = runtime.shutdown(Duration::from_millis(50));
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!(report.tasks_dropped, 10);
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    for task in tasks {
        assert!(dapple_sched::block_on(task).unwrap_err().is_aborted());
    }
}

#[test]
fn a_stuck_worker_is_left_behind_and_reported() {
    let runtime = runtime(2);
    let gate = occupy(&runtime.handle().new_color());
    let report = runtime.shutdown(Duration::ZERO);
    assert_eq!(report.workers_stuck, 1);
    gate.open();
}

#[test]
fn after_shutdown_posts_are_refused_or_dropped_in_their_color() {
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let color = handle.new_color();
    let state = {
        let _entered = runtime.enter();
        Colored::new(1)
    };
    drop(runtime);
    assert!(matches!(color.try_post(|| ()), Err(PostError::ShutDown(_))));
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Count(dropped.clone());
    color.post(move || drop(count));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    let task = color.spawn(async {});
    assert!(dapple_sched::block_on(task).unwrap_err().is_aborted());
    // The state outlives the runtime, and is still guarded.
    assert_eq!(state.with_blocking(|n| *n), 1);
    assert_eq!(state.try_with(|n| *n), Ok(1));
}

#[test]
fn a_long_chain_of_tasks_is_dropped_without_overflowing_the_stack() {
    let runtime = runtime(1);
    {
        let _entered = runtime.enter();
        let mut last = spawn(std::future::pending::<()>());
        for _ in 0..crate::support::rounds(100_000) {
            let task = last;
            last = spawn(async move { drop(task.await) });
        }
        drop(last);
    }
    let report = runtime.shutdown(Duration::ZERO);
    assert_eq!(report.workers_stuck, 0);
}

#[test]
fn shutdown_races_with_posts_from_everywhere() {
    for round in 0..100 {
        let runtime = runtime(1 + round % 4);
        let handle = runtime.handle().clone();
        let colors: Vec<_> = (0..8).map(|_| handle.new_color()).collect();
        let balance = Arc::new(AtomicUsize::new(0));
        let made = std::thread::scope(|scope| {
            let posters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut made = 0;
                        for n in 0..crate::support::rounds(2_000) {
                            let count = Count(balance.clone());
                            let (color, again) = (colors[n % 8].clone(), colors[(n + 1) % 8].clone());
                            color.post(move || again.post(move || drop(count)));
                            made += 1;
                        }
                        made
                    })
                })
                .collect();
            drop(runtime);
            posters.into_iter().map(|poster| poster.join().unwrap()).sum::<usize>()
        });
        // Every closure was run or dropped, whenever it came. (A worker that the machine did not
        // run for a while counts as stuck, and drops its own later.)
        let until = Instant::now() + LONG;
        while balance.load(Ordering::Relaxed) < made && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(balance.load(Ordering::Relaxed), made);
    }
}

#[test]
fn a_worker_may_shut_its_own_runtime_down() {
    let outer = runtime(1);
    let inner = runtime(1);
    let color = inner.handle().new_color();
    let (tx, seen) = crate::support::collector();
    color.post(move || {
        drop(inner);
        tx.send(()).unwrap();
    });
    seen.all();
    drop(outer);
}

#[test]
fn a_bad_number_of_workers_is_an_error() {
    for workers in [0, 100_000] {
        let error = Runtime::builder().workers(workers).build().unwrap_err();
        assert!(error.to_string().contains("from 1 to"), "{error}");
    }
}

#[test]
fn a_shutdown_may_wait_for_ever() {
    let runtime = runtime(1);
    let task = runtime.spawn(async { yield_now().await });
    let report = runtime.shutdown(Duration::MAX);
    assert_eq!((report.tasks_dropped, report.workers_stuck), (0, 0));
    assert!(dapple_sched::block_on(task).is_ok());
}
