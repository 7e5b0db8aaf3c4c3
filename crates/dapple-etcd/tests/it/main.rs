//! The client with a real etcd, if there is one; `cargo xtask etcd` builds it. And with servers
//! that only look like one.

mod cluster;
mod hostile;
mod real_etcd;

use std::future::Future;
use std::time::Duration;

/// Runs a test in a task.
pub(crate) fn run<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = dapple_io::runtime_builder().workers(2).build().unwrap();
    let limited = async move { dapple_io::time::timeout(LIMIT, test).await.expect("it is done within the limit") };
    runtime.block_on(runtime.spawn(limited)).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A limit that only a bug reaches.
const LIMIT: Duration = Duration::from_secs(300);
