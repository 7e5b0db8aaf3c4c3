//! Marks: timers that are dropped while another thread has the lock of the queue; and queues that
//! outlive their slot.

use std::task::Waker;
use std::time::Duration;

use dapple_io::model::{Model, ModelTimer};
use loom::thread::yield_now;

use crate::support::{Flag, check, spawn};

/// So late that no model sees it.
const FAR: Duration = Duration::from_secs(3600);

fn armed(after: Duration, waker: &Waker) -> ModelTimer {
    let mut timer = ModelTimer::after(after);
    assert!(!timer.poll(waker));
    timer
}

// A thread that is not a worker drops two timers while the worker fires another one, and parks. The
// worker sleeps only after they were removed.
//
// Two threads, here and below: of three that spin for one lock, loom may let only two run, for
// ever.
//
// Caught: a mark that does not wake the worker, and one that is cleared unseen (the worker sleeps
// for ever).
#[test]
fn timers_are_dropped_while_the_worker_fires_another() {
    check(3, || {
        let model = Model::new(1);
        let entered = model.enter();
        let due = armed(Duration::from_millis(1), Waker::noop());
        let dropped = [armed(FAR, Waker::noop()), armed(FAR, Waker::noop())];
        model.pass_time(Duration::from_millis(2));
        let worker = spawn({
            let model = model.clone();
            move || {
                model.own();
                while model.timers() > 1 {
                    model.park();
                }
            }
        });
        drop(dropped);
        if model.timers() == 1 {
            // Perhaps this thread has removed it, and the worker does not know of it.
            model.unpark();
        }
        worker.join().unwrap();
        drop((due, entered));
        model.finish();
    });
}

// The worker drops a timer while a thief has the lock, which wakes no thread; then it parks, and
// sleeps only after the timer was removed.
//
// Caught: a park without a look at the marks before it (the timer stays).
#[test]
fn the_worker_drops_a_timer_while_a_thief_fires_another() {
    check(3, || {
        let model = Model::new(1);
        let is_armed = Flag::new();
        let worker = spawn({
            let (model, is_armed) = (model.clone(), is_armed.clone());
            move || {
                model.own();
                let due = armed(Duration::from_millis(1), Waker::noop());
                let dropped = armed(FAR, Waker::noop());
                model.pass_time(Duration::from_millis(2));
                is_armed.set();
                drop(dropped);
                model.park();
                drop(due);
            }
        });
        while !is_armed.is_set() {
            yield_now();
        }
        model.poll();
        while model.timers() > 1 {
            yield_now();
        }
        model.unpark();
        worker.join().unwrap();
        model.finish();
    });
}

// A timer is dropped while the driver shuts down and its slot is freed: the queue is freed once,
// when it has neither an owner nor timers.
//
// Caught: a queue that is free before its slot has gone (freed twice); marks that the shutdown
// forgets (never freed).
#[test]
fn a_timer_is_dropped_while_its_slot_goes() {
    check(4, || {
        let model = Model::new(1);
        let entered = model.enter();
        let due = armed(Duration::from_millis(1), Waker::noop());
        let timer = armed(FAR, Waker::noop());
        drop(entered);
        model.pass_time(Duration::from_millis(2));
        let other = spawn(move || drop(timer));
        model.poll();
        drop(due);
        model.finish_with(|| other.join().unwrap());
    });
}
