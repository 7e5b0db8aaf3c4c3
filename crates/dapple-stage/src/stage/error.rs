//! How a request to a stage ends that yields no response.

use std::fmt;
use std::time::Duration;

use super::behind::behind;
use crate::Refused;

/// Why a stage has no response.
///
/// ```
/// use dapple_stage::{Reason, Refused, StageError};
///
/// let error: StageError<std::io::Error> = Refused::new(Reason::Stopping, Default::default()).into();
/// assert_eq!(error.to_string(), "refused: it is shutting down");
/// assert!(error.refused().is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageError<E> {
    /// It was not taken, or dropped from the queue. Nothing of it has run.
    Refused(Refused),
    /// The service failed.
    Service(E),
    /// The handler panicked, with this message, while it served the request.
    Panicked(String),
    /// Its time was over while it was served: the handler's future was dropped where it stood, after that time in service.
    Expired(Duration),
    /// The stage's runtime stopped before there was a response.
    Stopped,
}

impl<E> StageError<E> {
    /// What the stage itself refused it for, where that is so. A refusal of what its service has asked is found by [`Refused::find`].
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            StageError::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// The error of the service, where it is one.
    pub fn into_service(self) -> Option<E> {
        match self {
            StageError::Service(error) => Some(error),
            _ => None,
        }
    }

    /// The same with another error in it.
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
            StageError::Expired(after) => write!(f, "it was given up after {} ms in service", after.as_millis()),
            StageError::Stopped => f.write_str("the runtime stopped before there was a response"),
        }
    }
}

// Without a bound on `E` that boxed errors do not meet; its message is in this one's.
impl<E: fmt::Debug + fmt::Display + 'static> std::error::Error for StageError<E> {
    /// The refusal, or the error of the service where that is a box, an error of this crate, or of a type of which
    /// [`Stage::with_sources`](super::Stage::with_sources) was called.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StageError::Refused(refused) => Some(refused),
            StageError::Service(error) => behind(error),
            _ => None,
        }
    }
}
