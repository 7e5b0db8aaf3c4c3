//! `Colored`: with, post, try_with, from everywhere.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use dapple_sched::{Color, Colored, TryWithError, spawn, when, yield_now};

use crate::support::{collector, occupy, runtime};

#[test]
fn with_borrows_the_locals_of_the_task() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(vec![1, 2, 3]);
    runtime.block_on(async {
        let mut sum = 0;
        let factor = String::from("10");
        state.with(|list| list.iter().for_each(|n| sum += n * factor.parse::<i32>().unwrap())).await;
        assert_eq!(sum, 60);
    });
}

#[test]
fn with_waits_for_its_turn() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(Vec::new());
    let gate = occupy(state.color());
    state.post(|list| list.push("first"));
    let second = spawn({
        let state = state.clone();
        async move {
            state
                .with(|list| {
                    list.push("second");
                    assert_eq!(Color::current(), *state.color());
                })
                .await
        }
    });
    assert_eq!(state.try_with(|_| ()), Err(TryWithError::Busy));
    gate.open();
    runtime.block_on(second).unwrap();
    assert_eq!(state.with_blocking(|list| list.clone()), ["first", "second"]);
}

#[test]
fn dropping_the_future_cancels_it() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    {
        let mut waiting = pin!(state.with(|n| *n += 1));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    gate.open();
    assert_eq!(state.with_blocking(|n| *n), 0);
    // Never polled: never asked.
    drop(state.with(|n| *n += 1));
    assert_eq!(state.with_blocking(|n| *n), 0);
}

#[test]
fn dropping_a_granted_future_releases_the_color() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    let mut waiting = Box::pin(state.with(|n| *n += 1));
    struct Flag(std::sync::mpsc::Sender<()>);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (tx, woken) = collector();
    let waker = Waker::from(Arc::new(Flag(tx)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    woken.next();
    // Granted, and not polled: held.
    assert_eq!(state.try_with(|n| *n), Err(TryWithError::Busy));
    drop(waiting);
    assert_eq!(state.try_with(|n| *n), Ok(0));
}

#[test]
fn an_unpolled_grant_of_a_task_blocks_no_task() {
    // The deadlock of async mutexes: a waiter has a grant but is not polled, while its task waits
    // for the same color.
    for own_color_is_busy in [false, true] {
        let runtime = runtime(2);
        let _entered = runtime.enter();
        let state = Colored::new(0);
        let gate = occupy(state.color());
        let color = Color::new();
        let inner = state.clone();
        let (tx, waits) = collector();
        let task = color.spawn(async move {
            let mut idle = pin!(inner.with(|n| *n += 1));
            std::future::poll_fn(|cx| {
                assert!(idle.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            tx.send(()).unwrap();
            inner.with(|n| *n += 10).await;
            idle.await;
            inner.with(|n| *n).await
        });
        if own_color_is_busy {
            for _ in 0..100 {
                drop(color.spawn(async {
                    for _ in 0..100 {
                        yield_now().await;
                    }
                }));
            }
        }
        waits.next();
        gate.open();
        assert_eq!(runtime.block_on(task).unwrap(), 11);
    }
}

#[test]
fn with_in_a_task_of_the_same_color_runs_in_line() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let inner = state.clone();
    let task = state.color().spawn(async move {
        inner.with(|n| *n += 1).await;
        inner.post(|n| *n += 10);
        assert_eq!(inner.with(|n| *n).await, 1, "in line, before what is queued");
        yield_now().await;
        inner.with(|n| *n).await
    });
    assert_eq!(runtime.block_on(task).unwrap(), 11);
}

#[test]
fn two_states_of_one_color_can_be_used_together() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let (a, b) = (Colored::with_color(1, &color), Colored::with_color(2, &color));
    let sum = a.with_blocking(|a| {
        let twice = b.try_with(|b| *b * 2).expect("held by this closure");
        *a + twice
    });
    assert_eq!(sum, 5);
}

#[test]
fn the_same_state_is_not_lent_twice() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(1);
    let busy = state.with_blocking(|_| state.try_with(|n| *n));
    assert_eq!(busy, Err(TryWithError::Busy));
}

#[test]
fn works_from_any_executor() {
    // A foreign executor: one thread per future, with its own waker.
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..crate::support::rounds(2_000) {
                    dapple_sched::block_on(state.with(|n| *n += 1));
                }
            });
        }
        for _ in 0..crate::support::rounds(2_000) {
            state.post(|n| *n += 1);
        }
    });
    assert_eq!(state.with_blocking(|n| *n), 5 * crate::support::rounds(2_000));
}

#[test]
fn many_tasks_contend_for_few_states() {
    const TASKS: usize = 200;
    const EACH: usize = crate::support::rounds(200);
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let states: Vec<_> = (0..3).map(|_| Colored::new(0usize)).collect();
        let shared = Color::new();
        let finished = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (states, finished) = (states.clone(), finished.clone());
                let work = async move {
                    for n in 0..EACH {
                        states[(task + n) % 3].with(|n| *n += 1).await;
                        if n % 16 == 0 {
                            yield_now().await;
                        }
                    }
                    finished.fetch_add(1, Ordering::Relaxed);
                };
                if task % 4 == 0 { shared.spawn(work) } else { spawn(work) }
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        let sum: usize = states.iter().map(|state| state.with_blocking(|n| *n)).sum();
        assert_eq!((sum, finished.load(Ordering::Relaxed)), (TASKS * EACH, TASKS));
    }
}

#[test]
fn a_waiter_lets_go_of_the_state_after_its_closure() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    let (inside, out) = (crate::support::Gate::default(), crate::support::Gate::default());
    let (tx, waits) = collector();
    let task = spawn({
        let (state, inside, out) = (state.clone(), inside.clone(), out.clone());
        async move {
            let mut waiting = pin!(state.with(|n| *n += 1));
            std::future::poll_fn(|cx| match waiting.as_mut().poll(cx) {
                Poll::Pending => {
                    tx.send(()).unwrap();
                    Poll::Pending
                }
                ready => ready,
            })
            .await;
            // Still in the poll in which the closure ran.
            inside.open();
            out.wait();
        }
    });
    waits.next();
    for _ in 0..10 {
        state.post(|n| *n += 10);
    }
    gate.open();
    inside.wait();
    assert_eq!(state.with_blocking(|n| *n), 101, "the task keeps the state while it does something else");
    out.open();
    runtime.block_on(task).unwrap();
}

#[test]
fn a_background_task_does_not_delay_a_shutdown() {
    let runtime = runtime(1);
    drop(runtime.handle().default_color().spawn_background(std::future::pending::<()>()));
    let started = std::time::Instant::now();
    let report = runtime.shutdown(crate::support::LONG);
    assert!(started.elapsed() < crate::support::LONG / 2);
    assert_eq!(report.tasks_dropped, 0);
}

#[test]
fn a_wait_that_outlives_its_task_holds_nothing() {
    static STATE: OnceLock<Colored<i32>> = OnceLock::new();
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = STATE.get_or_init(|| Colored::new(0));
    let gate = occupy(state.color());
    let task = spawn(async move {
        let mut waiting = Box::pin(state.with(|n| *n += 1));
        std::future::poll_fn(|cx| {
            assert!(waiting.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        Some(waiting)
    });
    let waiting = runtime.block_on(task).unwrap().unwrap();
    gate.open();
    assert_eq!(state.with_blocking(|n| *n), 0);
    // It was missed; the future may ask again.
    runtime.block_on(waiting);
    assert_eq!(state.with_blocking(|n| *n), 1);
}

#[test]
fn a_grant_is_given_back_if_its_waker_wakes_no_task() {
    for own_color_is_busy in [false, true] {
        let runtime = runtime(2);
        let _entered = runtime.enter();
        let state = Colored::new(0);
        let gate = occupy(state.color());
        let color = Color::new();
        let inner = state.clone();
        let (tx, waits) = collector();
        let task = color.spawn(async move {
            let mut deaf = pin!(inner.with(|n| *n += 1));
            assert!(deaf.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tx.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        waits.next();
        let busy = own_color_is_busy.then(|| occupy(&color));
        gate.open();
        if let Some(busy) = busy {
            std::thread::yield_now();
            busy.open();
        }
        assert_eq!(state.with_blocking(|n| *n), 0);
        task.abort();
    }
}

/// Polls a wait once and drops it.
fn wait_and_drop(future: impl Future) {
    assert!(pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn waits_that_were_dropped_do_not_pile_up_in_a_busy_color() {
    const FEW: u64 = 200;
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (free, busy) = (Colored::new(0), Colored::new(0));
    let waits = || {
        for _ in 0..10_000 {
            wait_and_drop(busy.with(|n| *n += 100));
            wait_and_drop(busy.read(|n| *n));
            wait_and_drop(when((&busy, &free)).with(|_| ()));
        }
        busy.color().stats().queued
    };
    let after = |n| {
        busy.post(move |m| {
            assert_eq!(*m, n);
            *m += 1;
        });
    };
    // A callback keeps the color.
    let gate = occupy(busy.color());
    after(0);
    let queued = waits();
    assert!(queued < FEW, "{queued} wait in the inbox");
    after(1);
    gate.open();
    assert_eq!(busy.with_blocking(|n| *n), 2);
    // A granted wait keeps it, and live waits are queued.
    let gate = occupy(busy.color());
    let mut granted = pin!(busy.with(|n| *n += 1));
    assert!(granted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    after(3);
    gate.open();
    while runtime.handle().dump().to_string().contains("runs color") {
        std::thread::yield_now();
    }
    let queued = waits();
    assert!(queued < FEW, "{queued} wait in the fifo");
    after(4);
    runtime.block_on(granted);
    assert_eq!(busy.with_blocking(|n| *n), 5);
    assert_eq!(free.try_with(|n| *n), Ok(0));
}

#[test]
fn readers_go_on_when_the_writer_before_them_was_dropped_and_swept() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(7);
    // This thread reads; a writer waits after it, and a reader after the writer.
    state
        .try_read(|_| {
            let reader = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        // As many as start a sweep when the last one is dropped.
                        let mut writers: Vec<_> = (0..64).map(|_| Box::pin(state.with(|n| *n = 0))).collect();
                        let mut cx = Context::from_waker(Waker::noop());
                        assert!(writers.iter_mut().all(|writer| writer.as_mut().poll(&mut cx).is_pending()));
                        let mut reader = Box::pin(state.read(|n| *n));
                        assert!(reader.as_mut().poll(&mut cx).is_pending());
                        drop(writers);
                        dapple_sched::block_on(reader)
                    })
                    .join()
                    .unwrap()
            });
            assert_eq!(reader, 7);
        })
        .unwrap();
}
