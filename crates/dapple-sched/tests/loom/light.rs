//! Light tasks: tasks with a color that is not requested, until it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple_sched::{Color, yield_now};

use crate::support::{Count, Crossing, Event, Flag, Log, block_on, check, finish, model, work_until};

// A wake races with the poll, and the end of the task with its joiner.
//
// Caught: a poll that ends without a check of WOKEN (deadlock); DONE set without release (data
// race); a joiner that does not check DONE again (deadlock).
#[test]
fn a_wake_meets_the_poll_of_a_light_task() {
    check(3, || {
        let model = model(1);
        let (crossing, event, done) = (Crossing::new(), Event::new(), Flag::new());
        let task = model.handle().spawn({
            let (event, done) = (event.clone(), done.clone());
            async move {
                std::future::poll_fn(|cx| event.poll(cx)).await;
                done.set();
                7
            }
        });
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        event.set();
        assert_eq!(block_on(task).unwrap(), 7);
        worker.join().unwrap();
        drop(event);
        finish(&model);
    });
}

// The color is requested while the task is queued, polled, yields or has ended: posts to it never
// overlap a poll.
//
// Caught: a color that is not held for the queued task (overlap), or held and never released
// (deadlock).
#[test]
fn the_color_of_a_light_task_is_asked_for() {
    check(2, || {
        let model = model(1);
        let (crossing, log, done) = (Crossing::new(), Log::new(), Flag::new());
        let task = model.handle().spawn({
            let log = log.clone();
            async move {
                log.add(1);
                yield_now().await;
                log.add(2);
            }
        });
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        log.post(task.color(), 3);
        task.color().post(move || done.set());
        worker.join().unwrap();
        block_on(task).unwrap();
        let mut seen = log.all();
        assert_eq!(seen.iter().filter(|entry| **entry != 3).copied().collect::<Vec<_>>(), [1, 2]);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3]);
        finish(&model);
    });
}

// The task itself asks for its color, and another thread does so at the same time.
//
// Caught: two colors for one task (overlap); a poll that continues as a turn without an end
// (deadlock).
#[test]
fn a_light_task_asks_for_its_own_color() {
    check(2, || {
        let model = model(1);
        let (crossing, log, done) = (Crossing::new(), Log::new(), Flag::new());
        let task = model.handle().spawn({
            let log = log.clone();
            async move {
                log.post(&Color::current(), 1);
                log.add(0);
                yield_now().await;
                log.add(2);
            }
        });
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        log.post(task.color(), 3);
        task.color().post(move || done.set());
        worker.join().unwrap();
        block_on(task).unwrap();
        let seen = log.all();
        assert_eq!(seen.iter().filter(|entry| **entry != 3).copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(seen.len(), 4);
        finish(&model);
    });
}

// A worker polls a batch of tasks while a thief takes as many of it as it can: each poll happens
// once, and after the one before.
//
// Caught: a worker that does not check for a thief, or checks before it writes its position
// (overlap); a thief that takes the polled task (overlap); entries that are still there after they
// were taken (crash).
#[test]
fn a_stretch_is_stolen() {
    check(4, || {
        let model = model(2);
        let crossing = Crossing::new();
        let logs = [Log::new(), Log::new(), Log::new()];
        let tasks = logs.clone().map(|log| {
            let crossing = crossing.clone();
            model.handle().spawn(async move {
                crossing.pass();
                log.add(1);
                yield_now().await;
                log.add(2);
            })
        });
        let victim = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        model.mark_overdue(0);
        model.worker(1, |worker| {
            crossing.pass();
            worker.steal();
            worker.drain();
        });
        victim.join().unwrap();
        tasks.map(drop);
        finish(&model);
        logs.iter().for_each(|log| assert_eq!(log.all(), [1, 2]));
    });
}

// The last wake of a task meets the end of its worker: its future is dropped once, by one or the
// other.
//
// Caught: a task that is queued at a worker that no longer checks (leak).
#[test]
fn a_wake_meets_the_end_of_a_worker() {
    check(3, || {
        let model = model(1);
        let (crossing, event) = (Crossing::new(), Event::new());
        let gone = Arc::new(AtomicUsize::new(0));
        let task = model.handle().spawn({
            let (event, count) = (event.clone(), Count(gone.clone()));
            async move {
                let _count = count;
                std::future::poll_fn(|cx| event.poll(cx)).await;
            }
        });
        let worker = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(0, |worker| {
                    worker.step();
                    worker.exit();
                });
            }
        });
        crossing.pass();
        event.set();
        worker.join().unwrap();
        let _ = block_on(task);
        assert_eq!(gone.load(Ordering::Relaxed), 1);
        drop(event);
        assert_eq!(model.references(), 1, "the task was not freed");
    });
}
