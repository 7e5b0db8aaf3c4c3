//! Why something was not taken, and when to come back.

use std::error::Error;
use std::io;
use std::time::Duration;

/// A request was not taken, or was dropped while it waited. Nothing of it has run.
///
/// Overload is an ordinary result: the caller is told why and when to try again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused: {reason}")]
#[non_exhaustive]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// After this time there may be room; zero where nothing is known.
    pub retry_after: Duration,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Reason {
    /// It would have been answered too late.
    #[error("it would be answered in about {} ms, and {} ms are the most at present", predicted.as_millis(), target.as_millis())]
    Delay {
        /// When the reply would be expected, from the arrival on.
        predicted: Duration,
        /// The most with which such a request is taken at present: the target, or less where a shorter queue keeps the
        /// service busy.
        target: Duration,
    },
    /// The queue has as many requests as it may have.
    #[error("the queue is full, with {len} waiting")]
    Full {
        /// How many wait.
        len: usize,
    },
    /// As many requests are in service as may be.
    #[error("as many requests are in service as may be")]
    Busy,
    /// Its client has more than a fair share of what waits.
    #[error("this client has its fair share already, with {len} requests waiting")]
    Share {
        /// How many of the client's requests wait.
        len: usize,
    },
    /// Room was needed for a request of a higher class.
    #[error("room was needed for more important requests")]
    Class,
    /// Its own deadline has passed, or cannot be met any more.
    #[error("its deadline cannot be met")]
    Deadline,
    /// More requests come than the rate allows.
    #[error("the rate limit is reached")]
    Rate,
    /// The memory set aside for requests is used up.
    #[error("memory for requests is used up")]
    Memory,
    /// Nothing is behind the queue at present: every replica is out, or the stage has been taken out.
    #[error("no replica is in service")]
    Unavailable,
    /// It is being shut down.
    #[error("it is shutting down")]
    Stopping,
}

impl Reason {
    /// The names of all reasons, for statistics.
    #[doc(hidden)]
    pub const NAMES: [&str; 10] =
        ["full", "deadline", "memory", "rate", "delay", "share", "class", "unavailable", "stopping", "busy"];

    /// Which of [`NAMES`](Self::NAMES) it has.
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
    /// A refusal, to be tried again after `retry_after`.
    pub fn new(reason: Reason, retry_after: Duration) -> Refused {
        Refused { reason, retry_after }
    }

    /// The refusal that an error is, or that caused it, through whatever stages, pipelines and middleware it came.
    ///
    /// Where a stage's service fails with an error of yours that has a refusal as its source, tell the stage so by
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

/// The next error of a chain. One of I/O names as its source that of what it holds, and not what it holds.
fn below<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(held) => Some(held),
        None => error.source(),
    }
}
