//! A ring that its worker and thieves turn.

use std::sync::Arc;
use std::task::{Wake, Waker};

use dapple_io::model::{Call, Model};
use loom::thread::yield_now;

use crate::support::{Flag, block_on, check, poll_once, spawn};

// A worker in a long callback has begun a call: a thief submits the call, and handles completions
// (C6).
//
// Caught: a poll that does not turn the ring.
#[test]
fn a_thief_turns_the_ring_of_a_busy_worker() {
    check(2, || {
        let model = Model::new(1);
        let done = Flag::new();
        let worker = spawn({
            let (model, done) = (model.clone(), done.clone());
            move || {
                model.own();
                let calls = [Call::new(), Call::new()];
                for call in calls {
                    assert_eq!(block_on(call).unwrap(), 0);
                }
                done.set();
            }
        });
        while !done.is_set() {
            model.poll();
            model.complete_call();
            yield_now();
        }
        worker.join().unwrap();
        assert_eq!(model.calls(), (0, 0));
        model.finish();
    });
}

/// The waker of a task, which wakes the worker through the scheduler: a thief may call it while the
/// worker sleeps.
struct Task(Flag, Model);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.set();
        self.1.unpark();
    }
}

// The worker parks while a thief submits and handles completions of its ring; the kernel may have
// one call at a time.
//
// Caught: a queued call that is not submitted when there is room again; a completion that wakes no
// task.
#[test]
fn a_thief_turns_the_ring_of_a_worker_that_parks() {
    check(2, || {
        let model = Model::new(1);
        model.block_sleepers();
        let [first, second] = [Flag::new(), Flag::new()];
        let worker = spawn({
            let (model, first, second) = (model.clone(), first.clone(), second.clone());
            move || {
                model.own();
                let mut calls = [Call::new(), Call::new()];
                let wakers = [&first, &second].map(|done| Waker::from(Arc::new(Task(done.clone(), model.clone()))));
                calls.iter_mut().zip(&wakers).for_each(|(call, waker)| assert!(poll_once(call, waker).is_pending()));
                while !(first.is_set() && second.is_set()) {
                    model.park();
                }
                calls.iter_mut().zip(&wakers).for_each(|(call, waker)| assert!(poll_once(call, waker).is_ready()));
            }
        });
        let thief = spawn({
            let model = model.clone();
            move || {
                model.poll();
            }
        });
        (0..2).for_each(|_| model.complete_next_call());
        thief.join().unwrap();
        worker.join().unwrap();
        assert_eq!(model.calls(), (0, 0));
        model.finish();
    });
}

// Another thread drops a call that the kernel has: the sleeping worker submits the cancellation,
// and the call's place becomes free.
//
// Caught: a place that is freed while the kernel has the call; an orphan that is not freed when it
// is completed; a cancellation that the worker is not told of.
#[test]
fn another_thread_drops_a_call() {
    check(2, || {
        let model = Model::new(1);
        let worker_model = model.clone();
        let worker = spawn(move || {
            let model = worker_model;
            model.own();
            let mut call = Call::new();
            assert!(poll_once(&mut call, Waker::noop()).is_pending());
            let other = spawn(move || drop(call));
            while model.calls() != (0, 0) {
                model.park();
            }
            other.join().unwrap();
        });
        model.complete_call();
        worker.join().unwrap();
        model.finish();
    });
}

// A task begins a call on a thread that is not the worker: the sleeping worker submits it.
//
// Caught: a call that the worker is not told of.
#[test]
fn another_thread_begins_a_call() {
    check(2, || {
        let model = Model::new(1);
        model.complete_at_once();
        let worker = spawn({
            let model = model.clone();
            move || {
                model.own();
                let mut call = Call::new();
                let done = Flag::new();
                let waker = done.waker();
                let task = spawn(move || {
                    assert!(poll_once(&mut call, &waker).is_pending());
                    call
                });
                while !done.is_set() {
                    model.park();
                }
                let mut call = task.join().unwrap();
                assert!(poll_once(&mut call, Waker::noop()).is_ready());
            }
        });
        worker.join().unwrap();
        assert_eq!(model.calls(), (0, 0));
        model.finish();
    });
}

// The driver shuts down while the kernel has one call and another waits for its turn; a thread
// drops one of the two futures.
//
// Caught: a shutdown that forgets the queued calls.
#[test]
fn a_shutdown_meets_calls() {
    check(2, || {
        let model = Model::new(1);
        let worker = spawn({
            let model = model.clone();
            move || {
                model.own();
                let mut calls = [Call::new(), Call::new()];
                calls.iter_mut().for_each(|call| assert!(poll_once(call, Waker::noop()).is_pending()));
                let [submitted, queued] = calls;
                let other = spawn(move || drop(submitted));
                model.shut_down();
                other.join().unwrap();
                assert!(block_on(queued).is_err(), "never submitted");
            }
        });
        worker.join().unwrap();
        assert_eq!(model.calls(), (0, 0));
        model.finish();
    });
}
