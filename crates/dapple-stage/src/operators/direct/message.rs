//! What a sender that retransmits and its receiver say to one another.

use crate::{BoxError, Fate, Refused};

/// The name that a receiver has given to a sender. No receiver gives the same twice, also when it was started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Session {
    /// Chosen by chance when the receiver started.
    pub epoch: u64,
    /// Counted since then.
    pub number: u64,
}

/// In which order a receiver hands messages of one sender on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// As they come, several at once.
    #[default]
    Any,
    /// As they were sent, one after the other. One that is missing is waited for, as long as its sender tries.
    Gapless,
    /// As they were sent, one after the other. One that is missing is not waited for, and not taken when it comes late.
    Skipping,
}

/// What comes to a [`Receiver`](super::Receiver).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Delivery<M> {
    /// I am new here.
    Open {
        /// The number of my first message.
        floor: u64,
        /// How mine are to be handed on.
        order: Order,
    },
    /// A message, for the first time or again.
    Message {
        /// Who I am.
        session: Session,
        /// Which message it is.
        sequence: u64,
        /// All before this are settled as far as I am concerned, and can be forgotten.
        floor: u64,
        /// The message; none to ask what became of it, and to withdraw it if nothing did.
        message: Option<M>,
    },
}

/// What a [`Receiver`](super::Receiver) answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Receipt<R> {
    /// To `Open`.
    Opened(Session),
    /// What became of the message, once and for all.
    Settled(Settled<R>),
    /// It has not run, and it may when it is sent again.
    Busy(String),
    /// I do not know you (any more). This has not run, and what was sent to me before as you will not run again.
    Forgotten,
}

/// What became of a message.
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

/// Why there is no response. The three cases are what a sender has to tell apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// It has not run and never will: it may be sent again as a new message.
    #[error("not delivered: {0}")]
    NotDone(String),
    /// It ran once, and the receiver's service failed.
    #[error("delivered, and failed: {0}")]
    Failed(String),
    /// It may have run once, or may do so yet, but never twice. Nobody has answered in the time that was given.
    #[error("it is not known whether this was delivered: {0}")]
    Unknown(String),
}

/// What a failed attempt means: whether nothing can have run.
pub(super) fn is_not_run(error: &BoxError) -> bool {
    Fate::of(error) == Fate::NotRun || Refused::find(&**error).is_some()
}
