//! The errors of a sink.

use std::error::Error;
use std::fmt;
use std::io;

use super::NoRoom;

/// Why an item was not accepted. Contains the item, unless the codec took it.
#[non_exhaustive]
pub enum SubmitError<T> {
    /// The limit of requests or bytes is reached: retry after some are written, or slow the
    /// producer down.
    Full(T),
    /// The queue for the completion is full: take some items out of it.
    CompletionsFull(T),
    /// The sink was closed.
    Closed(T),
    /// The queue for the completion was closed.
    CompletionsClosed(T),
    /// The device has failed, with this error.
    Failed(T, io::Error),
    /// The codec cannot write the item. The sink continues with others.
    NotEncoded(io::Error),
}

impl<T> SubmitError<T> {
    pub(super) fn new(reason: NoRoom, item: T) -> Self {
        match reason {
            NoRoom::Full => SubmitError::Full(item),
            NoRoom::Closed => SubmitError::Closed(item),
            NoRoom::Failed(failure) => SubmitError::Failed(item, failure.error()),
        }
    }

    /// The item, unless the codec took it.
    pub fn into_inner(self) -> Option<T> {
        match self {
            SubmitError::Full(item)
            | SubmitError::CompletionsFull(item)
            | SubmitError::Closed(item)
            | SubmitError::CompletionsClosed(item)
            | SubmitError::Failed(item, _) => Some(item),
            SubmitError::NotEncoded(_) => None,
        }
    }

    fn text(&self) -> &'static str {
        match self {
            SubmitError::Full(_) => "the sink is full: retry after some of it is written",
            SubmitError::CompletionsFull(_) => "the queue for the completion is full: take some completions out",
            SubmitError::Closed(_) => "the sink is closed",
            SubmitError::CompletionsClosed(_) => "the queue for the completion is closed",
            SubmitError::Failed(..) => "the device of the sink has failed",
            SubmitError::NotEncoded(_) => "the item cannot be written",
        }
    }
}

impl<T> fmt::Debug for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubmitError({self})")
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self {
            SubmitError::Failed(_, error) | SubmitError::NotEncoded(error) => write!(f, ": {error}"),
            _ => Ok(()),
        }
    }
}

impl<T> Error for SubmitError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SubmitError::Failed(_, error) | SubmitError::NotEncoded(error) => Some(error),
            _ => None,
        }
    }
}

/// Has the matching kind: `WouldBlock` for a lack of room, `BrokenPipe` for a closed sink or queue,
/// otherwise that of the device or the codec.
impl<T> From<SubmitError<T>> for io::Error {
    fn from(error: SubmitError<T>) -> io::Error {
        match error {
            SubmitError::Failed(_, error) | SubmitError::NotEncoded(error) => error,
            SubmitError::Full(_) | SubmitError::CompletionsFull(_) => {
                io::Error::new(io::ErrorKind::WouldBlock, error.text())
            }
            SubmitError::Closed(_) | SubmitError::CompletionsClosed(_) => {
                io::Error::new(io::ErrorKind::BrokenPipe, error.text())
            }
        }
    }
}
