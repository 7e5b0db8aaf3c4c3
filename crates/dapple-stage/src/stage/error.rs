//! The error of a request to a stage.

use std::fmt;
use std::time::Duration;

use super::behind::behind;
use crate::Refused;

/// Why a stage returns no response.
///
/// ```
/// use dapple_stage::{Reason, Refused, StageError};
///
/// let error: StageError<std::io::Error> = Refused::new(Reason::Stopping, Default::default()).into();
/// assert_eq!(error.to_string(), "refused: the service is shutting down");
/// assert!(error.refused().is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageError<E> {
    /// The stage refused the request, or dropped it from the queue. No part of it has run.
    Refused(Refused),
    /// The service failed.
    Service(E),
    /// The handler panicked, with this message, while it served the request.
    Panicked(String),
    /// Its time ran out in service, after this long: the stage dropped the handler's future.
    Expired(Duration),
    /// The stage's runtime stopped before there was a response.
    Stopped,
}

impl<E> StageError<E> {
    /// The stage's own refusal, if this is one. [`Refused::find`] also finds a refusal inside the
    /// service's error.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            StageError::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// The error of the service, if this is one.
    pub fn into_service(self) -> Option<E> {
        match self {
            StageError::Service(error) => Some(error),
            _ => None,
        }
    }

    /// The same error, with the service's error converted.
    pub fn map<F>(self, map: impl FnOnce(E) -> F) -> StageError<F> {
        match self {
            StageError::Refused(refused) => StageError::Refused(refused),
            StageError::Service(error) => StageError::Service(map(error)),
            StageError::Panicked(message) => StageError::Panicked(message),
            StageError::Expired(after) => StageError::Expired(after),
            StageError::Stopped => StageError::Stopped,
        }
    }
}

impl<E> From<Refused> for StageError<E> {
    fn from(refused: Refused) -> StageError<E> {
        StageError::Refused(refused)
    }
}

impl<E: fmt::Display> fmt::Display for StageError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageError::Refused(refused) => write!(f, "{refused}"),
            StageError::Service(error) => write!(f, "{error}"),
            StageError::Panicked(message) => write!(f, "the handler panicked: {message}"),
            StageError::Expired(after) => {
                write!(f, "the request was given up after {} ms in service", after.as_millis())
            }
            StageError::Stopped => f.write_str("the runtime stopped before there was a response"),
        }
    }
}

// No `Error` bound on `E`, which boxed errors do not meet; this message includes that of `E`.
impl<E: fmt::Debug + fmt::Display + 'static> std::error::Error for StageError<E> {
    /// The refusal, or the error of the service if it is a box, an error of this crate, or of a
    /// type for which [`Stage::with_sources`](super::Stage::with_sources) was called.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StageError::Refused(refused) => Some(refused),
            StageError::Service(error) => behind(error),
            _ => None,
        }
    }
}
