//! The I/O core from outside. Tests wait for conditions, with a limit that only a bug reaches; none
//! relies on a sleep.

#[macro_use]
#[path = "../../../dapple-sched/tests/it/lets_others_go.rs"]
mod lets_others_go;

mod blocking;
#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod budget;
mod busy_worker;
mod cancel;
#[path = "../../../dapple-sched/tests/it/clones.rs"]
mod clones;
mod deadline;
mod descriptor;
mod dir;
mod direct;
#[cfg(feature = "dns")]
mod dns;
#[cfg(feature = "dns")]
mod dns_server;
mod faults;
mod file_load;
mod files;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod futures;
mod happy_eyeballs;
mod idle_descriptors;
mod one_thread;
mod process;
#[path = "../../../dapple-sched/tests/it/quota.rs"]
mod quota;
mod rest;
mod shortage;
mod shutdown;
mod signal;
mod spread;
mod stream;
mod traits;
mod unwatched;
mod watch;

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dapple_io::Config;
use dapple_sched::{Callback, Color, Runtime};

/// A time that only a bug reaches.
const LIMIT: Duration = Duration::from_secs(20);

fn runtime(workers: usize) -> Runtime {
    let builder = dapple_io::runtime_builder().workers(workers);
    builder.build().expect("a runtime can be built")
}

/// Runs a future on a runtime of its own, with a standing clock.
fn run_standing<T>(workers: usize, future: impl Future<Output = T>) -> T {
    let mut config = Config::default();
    config.standing_clock = true;
    let runtime = dapple_io::runtime_builder_with(config).workers(workers).build();
    runtime.expect("a runtime can be built").block_on(future)
}

/// Runs a future on a runtime of its own.
fn run<T>(workers: usize, future: impl Future<Output = T>) -> T {
    let runtime = runtime(workers);
    let result = runtime.block_on(dapple_io::time::timeout(LIMIT, future));
    result.expect("the test hangs")
}

/// A runtime with files that go through rings, if the kernel allows it, or through the pool.
fn file_runtime(workers: usize, io_uring: bool) -> Runtime {
    let mut config = Config::default();
    config.io_uring = io_uring;
    let runtime = dapple_io::runtime_builder_with(config).workers(workers).build();
    runtime.expect("a runtime can be built")
}

/// Runs the same on a worker with a ring and on one with files that go to the pool.
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

/// Descriptors that this runtime watches.
fn sources(runtime: &Runtime) -> usize {
    runtime.handle().driver::<dapple_io::EpollDriver>().expect("it has our driver").source_count()
}

/// A callback of a fresh color, and the receiver of its arguments.
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
