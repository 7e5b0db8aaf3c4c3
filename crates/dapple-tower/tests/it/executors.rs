//! The executors on which everything here must work.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Longer than anything should take on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Runs a future on each executor: as a task of a Dapple runtime, as a tokio task without any
/// driver, as a smol task, in a `block_on` on a bare thread, and in a minimal executor. Fails if it
/// hangs.
pub(crate) fn on_each<F>(future: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = future();
    within_limit("dapple", move || {
        let runtime = dapple_io::runtime_builder().workers(2).build().expect("threads can be started");
        runtime.block_on(runtime.spawn(task)).expect("the test's task panicked");
    });
    let task = future();
    within_limit("tokio", move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("threads can be started");
        runtime.block_on(async { tokio::spawn(task).await }).expect("the test's task panicked");
    });
    let task = future();
    within_limit("smol", move || {
        let executor = smol::Executor::new();
        smol::block_on(executor.run(executor.spawn(task)));
    });
    let task = future();
    within_limit("block_on", move || dapple_sched::block_on(task));
    let task = future();
    within_limit("parked thread", move || park_on(task));
}

pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn within_limit(name: &str, work: impl FnOnce() + Send + 'static) {
    let (tx, rx) = channel();
    let thread = std::thread::spawn(move || {
        work();
        tx.send(()).ok();
    });
    match rx.recv_timeout(LONG) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("it hangs on {name}"),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it ended without a result");
            eprintln!("on {name}:");
            std::panic::resume_unwind(panic)
        }
    }
}

fn park_on(future: impl Future<Output = ()>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    while future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}
