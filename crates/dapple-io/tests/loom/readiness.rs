//! The readiness of one descriptor.

use dapple_io::model::{Model, Pipe};
use loom::thread::JoinHandle;

use crate::support::{Flag, block_on, check, spawn};

/// A worker that waits and dispatches until the flag is set.
fn worker(model: &Model, done: &Flag) -> JoinHandle<()> {
    let (model, done) = (model.clone(), done.clone());
    spawn(move || {
        model.own();
        while !done.is_set() {
            model.park();
        }
    })
}

fn a_byte_comes_while_a_task_reads(watched: bool, bytes: usize) {
    let model = Model::new(1);
    let entered = model.enter();
    let pipe = Pipe::new(watched);
    let done = Flag::new();
    let worker = worker(&model, &done);
    let peer = spawn({
        let pipe = pipe.clone();
        move || (0..bytes).for_each(|_| pipe.put())
    });
    block_on(async {
        for _ in 0..bytes {
            pipe.read().await.expect("the driver is open");
        }
    });
    done.set();
    model.unpark();
    peer.join().unwrap();
    worker.join().unwrap();
    drop((pipe, entered));
    model.finish();
}

// A byte comes before, while or after a task finds that there is none.
//
// Caught: a waiter that does not check again after its waker is kept; waiters that are woken before
// the flags are set (the task waits for ever).
#[test]
fn a_byte_comes_to_a_watched_descriptor() {
    check(2, || a_byte_comes_while_a_task_reads(true, 1));
}

// The same, if the kernel does not watch the descriptor before the task has to wait.
//
// Caught: a task that waits on an unwatched descriptor.
#[test]
fn a_byte_comes_to_an_unwatched_descriptor() {
    check(3, || a_byte_comes_while_a_task_reads(false, 1));
}

// The second byte may come while the task that has read the first finds no other.
//
// Caught: flags that are cleared although an event has come since.
#[test]
fn two_bytes_come() {
    check(2, || a_byte_comes_while_a_task_reads(true, 2));
}

// Two tasks wait on one descriptor, and one is dropped: the other gets the byte.
//
// Caught: only the first in the list is woken.
#[test]
fn one_of_two_readers_goes() {
    check(2, || {
        let model = Model::new(1);
        let entered = model.enter();
        let pipe = Pipe::new(true);
        let done = Flag::new();
        let worker = worker(&model, &done);
        let mut canceled = Box::pin({
            let pipe = pipe.clone();
            async move { pipe.read().await }
        });
        assert!(crate::support::poll_once(&mut canceled, std::task::Waker::noop()).is_pending());
        let reader = spawn({
            let (model, pipe) = (model.clone(), pipe.clone());
            move || {
                block_on(pipe.read()).expect("the driver is open");
                done.set();
                model.unpark();
            }
        });
        pipe.put();
        drop(canceled);
        reader.join().unwrap();
        worker.join().unwrap();
        drop((pipe, entered));
        model.finish();
    });
}

// The driver shuts down while a task begins to wait: the task learns of it.
//
// Caught: waiters that are woken before `CLOSED` is set.
#[test]
fn a_shutdown_meets_a_read() {
    check(3, || {
        let model = Model::new(1);
        let entered = model.enter();
        let pipe = Pipe::new(true);
        let reader = spawn({
            let pipe = pipe.clone();
            move || assert!(block_on(pipe.read()).is_err())
        });
        model.shut_down();
        reader.join().unwrap();
        drop((pipe, entered));
        model.finish();
    });
}
