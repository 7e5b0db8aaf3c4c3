//! What can be seen of a stage.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Reason;

/// A stage at one moment, and what it did so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageStats {
    /// The stage's name.
    pub name: String,
    /// What it is doing.
    pub status: Status,
    /// Requests that wait.
    pub queue_len: usize,
    /// How many may wait.
    pub queue_len_max: usize,
    /// What those that wait weigh, by the stage's `weigh`.
    pub queue_bytes: usize,
    /// Handles that wait for a place in the queue.
    pub callers_waiting: usize,
    /// Calls of handlers in service.
    pub in_service: usize,
    /// How many calls may be in service.
    pub width: usize,
    /// Requests that were taken into the queue.
    pub accepted: u64,
    /// Requests whose service returned a response.
    pub served: u64,
    /// Requests whose service returned an error.
    pub failed: u64,
    /// Requests that were refused, on arrival or while they waited.
    pub refused: u64,
    /// The same by reason; those that did not occur are left out.
    pub refused_for: Vec<(&'static str, u64)>,
    /// Requests whose caller stopped waiting before they were served.
    pub canceled: u64,
    /// Requests that were given up in service, because their time was over.
    pub expired: u64,
    /// Requests that ended with a panic.
    pub panicked: u64,
    /// Handlers that were made after others had died.
    pub restarts: u64,
    /// How often another version took over.
    pub replaced: u64,
    /// How long requests waited lately: a mean in which the last sixteen count most.
    pub queue_delay: Duration,
    /// How long they were in service, in the same way.
    pub service_time: Duration,
    /// For how long workers have run its handlers.
    pub worker_time: Duration,
}

/// What a stage is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It serves, or waits for requests.
    Running,
    /// A handler has died, and its place rests.
    Resting,
    /// Its handlers died too often: it refuses until something takes over with [`Stage::replace`](crate::Stage::replace).
    Out,
    /// It takes nothing more, and serves what waits.
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

/// What is counted on arrival, each by itself: `Relaxed`, as nothing is concluded from two of them together.
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
