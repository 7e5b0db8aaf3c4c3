//! Two workers that share a reactor, and the duty of waiting there.

use std::task::Context;

use dapple_io::model::{Model, Pipe};
use loom::thread::JoinHandle;

use crate::support::{Flag, Gate, Parcel, check, gated_waker, spawn};

/// A pipe that a task waits for, which sets the flag.
fn awaited_pipe(model: &Model, done: &Flag) -> Pipe {
    let entered = model.enter();
    let pipe = Pipe::new(true);
    assert!(pipe.poll_read(&mut Context::from_waker(&done.waker())).is_pending());
    drop(entered);
    pipe
}

/// A worker that begins with `first`, then parks until the flag is set, and last wakes the other
/// one.
fn worker(model: &Model, other: &Model, done: &Flag, first: impl FnOnce(&Model) + 'static) -> JoinHandle<()> {
    let (model, other, done) = (model.clone(), other.clone(), done.clone());
    spawn(move || {
        model.own();
        first(&other);
        while !done.is_set() {
            model.park();
        }
        other.unpark();
    })
}

// Two workers park while a byte comes: one of them wakes and dispatches it, in whatever order. The
// other is woken by the first.
//
// Caught: an unpark that does not wake a worker that sleeps aside; a worker that goes aside
// although it was told not to; a worker that fails to begin to wait and ends the wait of the holder
// (deadlocks).
#[test]
fn two_workers_park_while_a_byte_comes() {
    check(4, || {
        let [holder, aside] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&holder, &done);
        let workers = [worker(&holder, &aside, &done, |_| ()), worker(&aside, &holder, &done, |_| ())];
        pipe.put();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop((pipe, aside));
        holder.finish();
    });
}

// The holder is stuck in a callback. The other worker helps the holder, and parks: it takes the
// duty over, and finds the byte.
//
// Caught: a helper that does not take the duty over (deadlock).
#[test]
fn a_worker_helps_one_that_is_busy() {
    check(4, || {
        let [busy, helper] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&busy, &done);
        let worker = worker(&helper, &busy, &done, |busy| drop(busy.poll()));
        pipe.put();
        worker.join().unwrap();
        drop((pipe, helper));
        busy.finish();
    });
}

// A worker helps the holder while that parks, and then parks, too; a byte arrives: one of them
// dispatches it.
//
// Caught: the same as with two workers that park.
#[test]
fn a_worker_helps_one_that_parks() {
    check(4, || {
        let [holder, helper] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&holder, &done);
        let workers =
            [worker(&holder, &helper, &done, |_| ()), worker(&helper, &holder, &done, |holder| drop(holder.poll()))];
        pipe.put();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop((pipe, helper));
        holder.finish();
    });
}

// The same without a byte, but with an unpark of the helper: its park returns wherever it waits,
// and the helper sees the thread's earlier changes.
//
// Caught: a duty that is taken over while the holder waits; an unpark that does not wake a worker
// that sleeps aside (deadlocks).
#[test]
fn an_unpark_meets_a_worker_that_has_helped() {
    check(4, || {
        let [holder, helper] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&holder, &done);
        let parcel = Parcel::new();
        let other = worker(&holder, &helper, &done, |_| ());
        let unparked = spawn({
            let (holder, helper, parcel) = (holder.clone(), helper.clone(), parcel.clone());
            move || {
                helper.own();
                holder.poll();
                helper.park();
                assert_eq!(parcel.read(), 1);
            }
        });
        parcel.write(1);
        helper.unpark();
        unparked.join().unwrap();
        done.set();
        holder.unpark();
        other.join().unwrap();
        drop((pipe, helper));
        holder.finish();
    });
}

// The holder of the duty is in the middle of dispatching, in a waker that returns only after the
// other worker has parked and is back. The other one helps it, is unparked, and parks: it has the
// duty and does not get the lock of the events.
//
// Caught: a worker that waits for the lock of the events before it sleeps (deadlock).
#[test]
fn a_worker_parks_while_another_one_dispatches() {
    check(4, || {
        let [busy, helper] = Model::with_workers(1);
        let (dispatches, is_back) = (Gate::new(), Gate::new());
        let entered = busy.enter();
        let pipe = Pipe::new(true);
        let waker = gated_waker(&dispatches, &is_back);
        assert!(pipe.poll_read(&mut Context::from_waker(&waker)).is_pending());
        drop((entered, waker));
        pipe.put();
        let workers = [
            spawn({
                let busy = busy.clone();
                move || {
                    busy.own();
                    busy.poll();
                }
            }),
            spawn({
                let (busy, helper) = (busy.clone(), helper.clone());
                move || {
                    dispatches.pass();
                    helper.own();
                    busy.poll();
                    helper.unpark();
                    helper.park();
                    is_back.open();
                }
            }),
        ];
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop((pipe, helper));
        busy.finish();
    });
}

// The holder polls, is unparked once, and parks again, while the other worker is aside and a byte
// comes.
//
// Caught: a holder that never ends its wait (deadlock).
#[test]
fn the_holder_parks_twice() {
    check(4, || {
        let [holder, aside] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&holder, &done);
        let workers = [
            worker(&holder, &aside, &done, {
                let holder = holder.clone();
                move |_| {
                    holder.poll();
                    holder.park();
                }
            }),
            worker(&aside, &holder, &done, |_| ()),
        ];
        holder.unpark();
        pipe.put();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop((pipe, aside));
        holder.finish();
    });
}

// The second worker has the duty, and rests: it gives the duty to the first one, which parks
// meanwhile, and sleeps aside itself. A byte comes: one of them dispatches it.
//
// Caught: a duty that is given away without an unpark (deadlock).
#[test]
fn a_holder_gives_the_duty_away_to_rest() {
    check(4, || {
        let [working, resting] = Model::with_workers(1);
        let done = Flag::new();
        let pipe = awaited_pipe(&working, &done);
        let rests = resting.clone();
        let workers = [
            worker(&resting, &working, &done, move |working| {
                // As a helper does.
                working.poll();
                rests.rest(1);
            }),
            worker(&working, &resting, &done, |_| ()),
        ];
        pipe.put();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop((pipe, resting));
        working.finish();
    });
}
