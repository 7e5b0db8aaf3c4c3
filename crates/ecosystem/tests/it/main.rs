//! Libraries of Rust's ecosystem on Dapple.

#[cfg(feature = "tokio-context")]
mod context;
mod examples;
#[cfg(feature = "tokio-context")]
mod fastwebsockets;
mod features;
mod grpc;
mod http;
mod limits;
mod names;
#[cfg(feature = "tokio-context")]
mod object_store;
#[cfg(feature = "tokio-context")]
mod opentelemetry;
#[cfg(feature = "pooled-clients")]
mod pooled;
#[cfg(feature = "tokio-context")]
mod sea_orm;
mod serve;
mod server;
#[cfg(feature = "tokio-context")]
mod servers;
#[cfg(feature = "tokio-context")]
mod sqlite;
mod sync;
mod tls;
#[cfg(feature = "tokio-context")]
mod tower_http;
#[cfg(feature = "tokio-context")]
mod whole_runtime;

use std::future::Future;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Runs a test in a task on this many workers.
fn run<T: Send + 'static>(workers: usize, test: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = dapple::builder().workers(workers).build().unwrap();
    let limited = async move { dapple::time::timeout(LIMIT, test).await.expect("it is done within the limit") };
    let result = runtime.block_on(runtime.spawn(limited));
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Panics if a tokio runtime is current.
fn assert_no_tokio() {
    assert!(dapple::on_worker(), "this is a worker of Dapple's");
    // Without the feature there is no such runtime in the program.
    #[cfg(feature = "tokio-context")]
    assert!(tokio::runtime::Handle::try_current().is_err(), "and no thread of tokio's");
}

/// Two that are inside at the same time: each waits for the other, and blocks its worker while it
/// does.
#[derive(Default)]
struct Meeting {
    there: Mutex<u32>,
    changed: Condvar,
}

impl Meeting {
    /// Panics if the other one does not come while this one is here.
    fn attend(&self) {
        let mut there = self.there.lock().unwrap();
        *there += 1;
        self.changed.notify_all();
        let (_there, waited) = self.changed.wait_timeout_while(there, LIMIT / 4, |there| *there < 2).unwrap();
        assert!(!waited.timed_out(), "the other one runs at the same time");
    }
}

/// Only a bug reaches it.
const LIMIT: Duration = Duration::from_secs(120);
