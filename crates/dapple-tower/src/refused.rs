//! The refusal of a request: its reason, and when to retry.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

/// A request was not taken, or was dropped while it waited. No part of it has run.
///
/// Overload is an ordinary result: the caller learns why and when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// After this time there may be room; zero if unknown.
    pub retry_after: Duration,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

impl Error for Refused {}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Reason {
    /// It would have been answered too late.
    Delay {
        /// The predicted time from arrival to reply.
        predicted: Duration,
        /// The current limit for such a request: the target, or less if a shorter queue keeps the
        /// service busy.
        target: Duration,
    },
    /// The queue is full.
    Full {
        /// The length of the queue.
        len: usize,
    },
    /// The limit of requests in service is reached.
    Busy,
    /// Its client has more than a fair share of the waiting requests.
    Share {
        /// The number of the client's waiting requests.
        len: usize,
    },
    /// Room was needed for a request of a higher class.
    Class,
    /// Its own deadline has passed, or cannot be met any more.
    Deadline,
    /// Requests exceed the rate limit.
    Rate,
    /// The memory set aside for requests is used up.
    Memory,
    /// No service is available: every replica is out, or the stage is out of service.
    Unavailable,
    /// The service is shutting down.
    Stopping,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Delay { predicted, target } => {
                let [predicted, target] = [predicted, target].map(Duration::as_millis);
                write!(f, "the reply would take about {predicted} ms, and the current limit is {target} ms")
            }
            Reason::Full { len } => write!(f, "the queue is full, with {len} waiting"),
            Reason::Busy => f.write_str("the limit of requests in service is reached"),
            Reason::Share { len } => {
                write!(f, "this client has its fair share already, with {len} requests waiting")
            }
            Reason::Class => f.write_str("room was needed for more important requests"),
            Reason::Deadline => f.write_str("its deadline cannot be met"),
            Reason::Rate => f.write_str("the rate limit is reached"),
            Reason::Memory => f.write_str("memory for requests is used up"),
            Reason::Unavailable => f.write_str("no replica is in service"),
            Reason::Stopping => f.write_str("the service is shutting down"),
        }
    }
}

impl Error for Reason {}

impl Reason {
    /// The names of all reasons, for statistics.
    #[doc(hidden)]
    pub const NAMES: [&str; 10] =
        ["full", "deadline", "memory", "rate", "delay", "share", "class", "unavailable", "stopping", "busy"];

    /// Its index in [`NAMES`](Self::NAMES).
    #[doc(hidden)]
    pub fn kind(&self) -> usize {
        match self {
            Reason::Full { .. } => 0,
            Reason::Deadline => 1,
            Reason::Memory => 2,
            Reason::Rate => 3,
            Reason::Delay { .. } => 4,
            Reason::Share { .. } => 5,
            Reason::Class => 6,
            Reason::Unavailable => 7,
            Reason::Stopping => 8,
            Reason::Busy => 9,
        }
    }
}

impl Refused {
    /// A refusal with a time to retry after.
    pub fn new(reason: Reason, retry_after: Duration) -> Refused {
        Refused { reason, retry_after }
    }

    /// The refusal that an error is or was caused by, through any stages, pipelines and middleware.
    ///
    /// If a stage's service fails with your own error type that has a refusal as its source, call
    /// `Stage::with_sources`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple_tower::{BoxError, Reason, Refused};
    ///
    /// let error: BoxError = Refused::new(Reason::Rate, Duration::from_secs(1)).into();
    /// assert_eq!(Refused::find(&*error).unwrap().retry_after, Duration::from_secs(1));
    /// ```
    pub fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Refused> {
        std::iter::successors(Some(error), |error| below(*error)).find_map(|error| error.downcast_ref())
    }
}

/// The next error of a chain. An I/O error returns the source of its inner error, not the inner
/// error itself.
fn below<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(held) => Some(held),
        None => error.source(),
    }
}
