//! Waits from outside: across colors, from plain threads, and without blocking a worker. No test
//! relies on a sleep.

#[macro_use]
#[path = "../../../dapple-sched/tests/it/lets_others_go.rs"]
mod lets_others_go;

mod across;
#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod budget;
mod faults;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod futures;
mod group;
mod group_ends;
mod limit;
mod local;
mod many;
mod slot;
mod slot_order;
mod suspends;
mod token;
mod try_group;

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use dapple_sched::{Runtime, spawn};

/// Longer than anything should take on a loaded machine, under ThreadSanitizer too.
const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3_600 } else { 300 });

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("threads can be started")
}

/// Runs a future as a task of a new runtime, and fails if it hangs.
fn run<T: Send + 'static>(workers: usize, future: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = runtime(workers);
    let (tx, rx) = channel();
    runtime.spawn(async move { tx.send(future.await) });
    match rx.recv_timeout(LONG) {
        Ok(output) => output,
        Err(RecvTimeoutError::Disconnected) => panic!("the test's task panicked"),
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs: {:#?}", runtime.handle().dump()),
    }
}

/// Starts a plain thread and awaits it as a task does, without blocking a worker.
async fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = dapple_sync::sync::oneshot::channel();
    std::thread::spawn(move || drop(tx.send(work())));
    rx.await.expect("the thread does not panic")
}

/// Starts `count` tasks, each with its own color, and a plain thread, and awaits all of them.
async fn tasks_and_thread<F>(count: usize, task: impl Fn(usize) -> F, work: impl FnOnce() + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|index| spawn(task(index))).collect();
    thread(work).await;
    for task in tasks {
        task.await.expect("no task panics");
    }
}
