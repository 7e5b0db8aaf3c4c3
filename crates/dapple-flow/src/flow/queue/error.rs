//! The errors of a queue.

use std::error::Error;
use std::fmt;

/// Why an item was not taken. Contains the item.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError<T> {
    /// The queue is full: retry after some items have been taken out, or slow the producer down.
    Full(T),
    /// [`Queue::close`](super::Queue::close) was called: the queue takes no more items.
    Closed(T),
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PopError {
    /// There is none now, or none came within the limit.
    Empty,
    /// There is none and none will come: the queue is closed.
    Closed,
}

impl<T> PushError<T> {
    /// The item.
    pub fn into_inner(self) -> T {
        match self {
            PushError::Full(item) | PushError::Closed(item) => item,
        }
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "Full(..)",
            PushError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "the queue is full: try again later, or push lossily",
            PushError::Closed(_) => "the queue is closed",
        })
    }
}

impl<T> Error for PushError<T> {}

impl fmt::Display for PopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PopError::Empty => "the queue is empty",
            PopError::Closed => "the queue is closed and empty",
        })
    }
}

impl Error for PopError {}
