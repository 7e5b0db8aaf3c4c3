//! What a balancer knows of its replicas, to be shown.

use std::time::Duration;

/// One replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStats<K> {
    /// Its key.
    pub key: K,
    /// Whether it gets requests.
    pub state: ReplicaState,
    /// Requests that were sent to it and have not ended.
    pub in_flight: usize,
    /// The moving average of its latency, which follows a rise at once and fades; `None` before its first success.
    pub latency: Option<Duration>,
    /// Requests that succeeded.
    pub successes: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests that it refused for overload.
    pub refusals: u64,
}

/// Whether a replica gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicaState {
    /// It does.
    In,
    /// It does not.
    Out {
        /// For so long at least; zero where it may be tried at any moment.
        rest: Duration,
    },
    /// It has one, and comes back if that succeeds.
    Trial,
}
