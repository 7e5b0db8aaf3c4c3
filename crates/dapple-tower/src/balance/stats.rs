//! Statistics of a balancer's replicas.

use std::time::Duration;

/// One replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStats<K> {
    /// Its key.
    pub key: K,
    /// Whether it gets requests.
    pub state: ReplicaState,
    /// Requests in flight.
    pub in_flight: usize,
    /// The moving average of its latency, which rises at once and decays; `None` before its first
    /// success.
    pub latency: Option<Duration>,
    /// Requests that succeeded.
    pub successes: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests refused by it for overload.
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
        /// At least this long; zero if it may be tried at any moment.
        rest: Duration,
    },
    /// One request is its trial; it returns if that succeeds.
    Trial,
}
