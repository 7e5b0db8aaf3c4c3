//! The statistics of a stage.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Reason;

/// The state of a stage at one moment, and its counters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageStats {
    /// The stage's name.
    pub name: String,
    /// Its state.
    pub status: Status,
    /// Waiting requests.
    pub queue_len: usize,
    /// The limit of waiting requests.
    pub queue_len_max: usize,
    /// The weight of the waiting requests, from the stage's `weigh`.
    pub queue_bytes: usize,
    /// Handles that wait for a place in the queue.
    pub callers_waiting: usize,
    /// Calls of handlers in service.
    pub in_service: usize,
    /// The limit of calls in service.
    pub width: usize,
    /// Requests taken into the queue.
    pub accepted: u64,
    /// Requests that the service answered with a response.
    pub served: u64,
    /// Requests that the service answered with an error.
    pub failed: u64,
    /// Requests refused, on arrival or while they waited.
    pub refused: u64,
    /// Refused requests by reason; omits reasons that did not occur.
    pub refused_for: Vec<(&'static str, u64)>,
    /// Requests canceled by their caller before they were served.
    pub canceled: u64,
    /// Requests given up in service because their time ran out.
    pub expired: u64,
    /// Requests that ended with a panic.
    pub panicked: u64,
    /// Handlers made after others had died.
    pub restarts: u64,
    /// How often another version took over.
    pub replaced: u64,
    /// The recent wait of requests: a mean in which the last sixteen count most.
    pub queue_delay: Duration,
    /// The recent time in service, in the same way.
    pub service_time: Duration,
    /// The total time that workers ran its handlers.
    pub worker_time: Duration,
}

/// The state of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Serving, or waiting for requests.
    Running,
    /// A handler has died, and its place rests.
    Resting,
    /// Its handlers died too often: it refuses until [`Stage::replace`](crate::Stage::replace).
    Out,
    /// Takes no more requests, and serves the waiting ones.
    Stopping,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Running => "running",
            Status::Resting => "resting",
            Status::Out => "out",
            Status::Stopping => "stopping",
        })
    }
}

/// Independent counters of arrivals. `Relaxed`, because no code concludes anything from two of them
/// together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) canceled: AtomicU64,
    refused: [AtomicU64; Reason::NAMES.len()],
}

impl Counters {
    pub(crate) fn refused(&self, reason: &Reason) {
        self.refused[reason.kind()].fetch_add(1, Relaxed);
    }

    pub(crate) fn refused_for(&self) -> Vec<(&'static str, u64)> {
        let counts = Reason::NAMES.iter().zip(&self.refused).map(|(name, count)| (*name, count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// A mean in which the last sixteen samples count most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    ns: f64,
    samples: u32,
}

impl Mean {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.samples = (self.samples + 1).min(16);
        self.ns += (sample.as_nanos() as f64 - self.ns) / f64::from(self.samples);
    }

    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos(self.ns as u64)
    }
}
