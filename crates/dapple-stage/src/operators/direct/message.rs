//! The protocol between a retransmitting sender and its receiver.

use std::error::Error;
use std::fmt;

use crate::{BoxError, Fate, Refused};

/// The name that a receiver gives to a sender. No receiver gives the same name twice, even after a
/// restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    /// Random, chosen when the receiver started.
    pub epoch: u64,
    /// Counted from the start of the receiver.
    pub number: u64,
}

/// The order in which a receiver hands on the messages of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// As they come, several at once.
    #[default]
    Any,
    /// In the order of sending, one after the other. The receiver waits for a missing message as
    /// long as its sender tries.
    Gapless,
    /// In the order of sending, one after the other. The receiver does not wait for a missing
    /// message, and refuses it if it comes late.
    Skipping,
}

/// A message to a [`Receiver`](super::Receiver).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Delivery<M> {
    /// A new sender asks for a session.
    Open {
        /// The number of its first message.
        floor: u64,
        /// The order for its messages.
        order: Order,
    },
    /// A message, for the first time or again.
    Message {
        /// The sender.
        session: Session,
        /// The number of the message.
        sequence: u64,
        /// The sender has settled all messages before this one; the receiver can forget them.
        floor: u64,
        /// The message; `None` asks for the outcome, and withdraws the message if it has not run.
        message: Option<M>,
    },
}

/// A [`Receiver`](super::Receiver)'s answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Receipt<R> {
    /// The answer to `Open`.
    Opened(Session),
    /// The final outcome of the message.
    Settled(Settled<R>),
    /// It has not run; it may run when it is sent again.
    Busy(String),
    /// The receiver does not know this sender (any more). The message has not run, and earlier
    /// messages of this session will not run again.
    Forgotten,
}

/// The outcome of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Settled<R> {
    /// It ran once, with this response.
    Done(R),
    /// It ran once, and failed.
    Failed(String),
    /// It has not run and never will.
    NotDone(String),
}

/// Why there is no response. A sender must tell these three cases apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryError {
    /// It has not run and never will: it may be sent again as a new message.
    NotDone(String),
    /// It ran once, and the receiver's service failed.
    Failed(String),
    /// It may have run once, or may run yet, but never twice. No answer came in the given time.
    Unknown(String),
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryError::NotDone(why) => write!(f, "not delivered: {why}"),
            DeliveryError::Failed(why) => write!(f, "delivered, and failed: {why}"),
            DeliveryError::Unknown(why) => write!(f, "it is not known whether this was delivered: {why}"),
        }
    }
}

impl Error for DeliveryError {}

/// Whether a failed attempt proves that nothing has run.
pub(super) fn is_not_run(error: &BoxError) -> bool {
    Fate::of(error) == Fate::NotRun || Refused::find(&**error).is_some()
}
