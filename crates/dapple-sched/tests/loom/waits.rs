//! Waits for one color, and tasks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use dapple_sched::Colored;
use loom::thread;

use crate::support::{Count, Crossing, Event, Flag, Log, block_on, check, finish, model, work_until};

// A foreign executor waits for a state while its color runs callbacks.
//
// Caught: `hand_over` without wake (deadlock).
#[test]
fn a_wait_is_granted() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        state.post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        assert_eq!(block_on(state.with(|n| *n)), 1, "after what was posted before");
        state.post(move |_| done.set());
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// The future is dropped while its color is being handed over.
//
// Caught: a dropped future that keeps its grant, and `cancel` that checks GRANTED before QUEUED
// (deadlock).
#[test]
fn a_wait_is_canceled() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        state.post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        {
            let mut wait = pin!(state.with(|n| *n += 10));
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        state.post(move |n| {
            assert!(*n == 1 || *n == 11);
            done.set();
        });
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// A task waits for a state while a thread posts to it: it is polled in the state's turn, or handed
// the color.
//
// Caught, in the shipped code: a turn that ended at a waiter and forgot it because new nodes had
// arrived (deadlock).
#[test]
fn a_task_waits_for_a_state() {
    check(2, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        let task = model.handle().spawn({
            let (state, done) = (state.clone(), done.clone());
            async move {
                let seen = state.with(|n| *n).await;
                done.set();
                seen
            }
        });
        // Posted after the task began to wait; the task thus finds the state taken and queues after
        // this.
        let passing = crossing.clone();
        state.post(move |n| {
            passing.pass();
            *n += 1;
        });
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        task.color().post(|| ());
        crossing.pass();
        state.post(|n| *n += 10);
        worker.join().unwrap();
        model.worker(0, |worker| worker.drain());
        assert!([1, 11].contains(&block_on(task).unwrap()));
        drop(state);
        finish(&model);
    });
}

// A wake races with the poll, and the end of the task with its joiner.
//
// Caught: SCHEDULED cleared after the poll instead of before (deadlock); DONE set without release
// (data race).
#[test]
fn a_wake_meets_the_poll() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let event = Event::new();
        let task = model.handle().spawn({
            let event = event.clone();
            async move {
                std::future::poll_fn(|cx| event.poll(cx)).await;
                7
            }
        });
        let color = task.color().clone();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        event.set();
        assert_eq!(block_on(task).unwrap(), 7);
        color.post(move || done.set());
        worker.join().unwrap();
        drop(color);
        finish(&model);
    });
}

// An abort races with a wake and with the poll; the handle tells which one came first.
//
// Caught: DONE set without release (data race); `schedule` that queues a task that is queued
// (crash).
#[test]
fn an_abort_meets_a_wake() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let (event, gone) = (Event::new(), Arc::new(AtomicUsize::new(0)));
        let task = model.handle().spawn({
            let (event, count) = (event.clone(), Count(gone.clone()));
            async move {
                let _count = count;
                std::future::poll_fn(|cx| event.poll(cx)).await;
            }
        });
        let color = task.color().clone();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        let waker = crossing.spawn({
            let event = event.clone();
            move || event.set()
        });
        crossing.pass();
        task.abort();
        if let Err(error) = block_on(task) {
            assert!(error.is_aborted());
        }
        assert_eq!(gone.load(Ordering::Relaxed), 1);
        color.post(move || done.set());
        worker.join().unwrap();
        waker.join().unwrap();
        drop((event, color));
        finish(&model);
    });
}

// Dropped waits are swept out of an inbox while a callback of the color posts to it, which drains
// the inbox.
//
// Caught: a sweep that does not freeze the inbox (a node is in two places).
#[test]
fn a_sweep_meets_the_turn_that_drains_the_inbox() {
    check(3, || {
        let model = model(1);
        let color = model.handle().new_color_at(0);
        let (state, log, done) = (Colored::with_color(0, &color), Log::new(), Flag::new());
        color.post({
            let (color, log) = (color.clone(), log.clone());
            move || log.post(&color, 1)
        });
        let wait = || Box::pin(state.with(|n| *n += 1));
        let (mut one, mut two) = (wait(), wait());
        for wait in [&mut one, &mut two] {
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(one);
        let worker = thread::spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        log.post(&color, 2);
        // In a model, two dropped waits start a sweep.
        drop(two);
        color.post(move || done.set());
        worker.join().unwrap();
        let mut all = log.all();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        drop((state, color));
        finish(&model);
    });
}
