//! Flow and event loops from outside. Tests wait for their condition, with a limit that only a bug
//! reaches; none relies on a sleep.

#[macro_use]
#[path = "../../../dapple-sched/tests/it/lets_others_go.rs"]
mod lets_others_go;

#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
#[path = "../../../dapple-sched/tests/it/clones.rs"]
mod clones;
mod event_loop;
mod flow;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod queue_wakers;

/// More rounds than any budget has.
const MANY: usize = 1_000;

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dapple_io::Config;
use dapple_sched::{Callback, Color, Runtime};

/// Only a bug takes this long.
const LIMIT: Duration = Duration::from_secs(20);

fn runtime(workers: usize) -> Runtime {
    let builder = dapple_io::runtime_builder().workers(workers);
    builder.build().expect("a runtime can be built")
}

/// Runs a future on a new runtime.
fn run<T>(workers: usize, future: impl Future<Output = T>) -> T {
    let runtime = runtime(workers);
    let result = runtime.block_on(dapple_io::time::timeout(LIMIT, future));
    result.expect("the test hangs")
}

/// A runtime that uses io_uring for files if the kernel allows it, or the pool.
fn file_runtime(workers: usize, io_uring: bool) -> Runtime {
    let mut config = Config::default();
    config.io_uring = io_uring;
    let runtime = dapple_io::runtime_builder_with(config).workers(workers).build();
    runtime.expect("a runtime can be built")
}

/// Runs the same test on a worker with a ring and on one that sends files to the pool.
fn both_ways<F: Future<Output = io::Result<()>> + Send + 'static>(workers: usize, test: impl Fn() -> F) {
    for io_uring in [true, false] {
        let runtime = file_runtime(workers, io_uring);
        let task = runtime.spawn(test());
        let result = runtime.block_on(dapple_io::time::timeout(LIMIT, task));
        match result.expect("the test hangs") {
            Ok(result) => result.unwrap_or_else(|error| panic!("with io_uring {io_uring}: {error}")),
            Err(error) => panic!("with io_uring {io_uring}: {error}"),
        }
    }
}

/// A callback of a new color, and the receiver of its arguments.
fn channel_callback<A: Send + 'static>() -> (Callback<A>, mpsc::Receiver<A>) {
    let (tx, rx) = mpsc::channel();
    (Color::new().wrap(move |arg| drop(tx.send(arg))), rx)
}

/// Waits until a condition holds that other threads bring about.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
