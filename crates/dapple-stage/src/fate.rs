//! The possible ends of a request to another process.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use dapple_tower::balance::{Classify, Outcome};
use dapple_tower::middleware::retry::{Judge, Verdict};

use crate::{BoxError, Reason, Refused, StageError};

/// Whether a request has run, as far as its sender can know. This decides whether it may be sent
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It has not run and never will. Sending it again is safe.
    NotRun,
    /// Its handler returned this error.
    Ran,
    /// It was sent, and the sender does not know its fate: it may have run, or may still run. Send
    /// it again only if it may run twice.
    Unknown,
}

/// Why a request has no reply. A host's refusal is not a `RemoteError` but a [`Refused`], as in one
/// process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// No connection: the request was not sent.
    Unreachable {
        /// The address, as it was given.
        peer: String,
        /// The attempt and its error.
        why: String,
        /// The next attempt to connect begins no earlier than this.
        retry_after: Duration,
    },
    /// The host has no stage of this name. Nothing has run.
    NoStage {
        /// The address, as it was given.
        peer: String,
        /// The requested stage.
        stage: String,
        /// The host's message.
        message: String,
    },
    /// The stage takes other types than this side expects, or the host does not know the encoding.
    /// Nothing has run.
    Mismatch {
        /// The address, as it was given.
        peer: String,
        /// The requested stage.
        stage: String,
        /// Both schemas.
        message: String,
    },
    /// The request cannot be encoded, or the host cannot decode it. Nothing has run.
    Malformed(String),
    /// The request exceeds the size limit of this side or of the host. Nothing has run.
    TooLarge(String),
    /// The handler returned an error; this is its text.
    Failed(String),
    /// The handler panicked.
    Panicked(String),
    /// The handler has run, but its reply is too long, or of another type.
    Reply(String),
    /// No reply came in time. The host drops requests that it has not finished by then.
    TimedOut {
        /// The address, as it was given.
        peer: String,
        /// Whether the request had been sent.
        sent: bool,
    },
    /// The request was sent, and then the connection ended.
    Unknown {
        /// The address, as it was given.
        peer: String,
        /// How it ended.
        why: String,
    },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Unreachable { peer, why, .. } => write!(f, "{peer} cannot be reached: {why}"),
            RemoteError::NoStage { peer, stage, message } => write!(f, "{peer} has no stage `{stage}`: {message}"),
            RemoteError::Mismatch { peer, stage, message } => {
                write!(f, "{peer} means other types by `{stage}`: {message}")
            }
            RemoteError::Malformed(why) => write!(f, "the request cannot be sent: {why}"),
            RemoteError::TooLarge(why) => write!(f, "the request is too long: {why}"),
            RemoteError::Failed(why) => write!(f, "the handler failed: {why}"),
            RemoteError::Panicked(why) => write!(f, "the handler panicked: {why}"),
            RemoteError::Reply(why) => write!(f, "the reply cannot be read: {why}"),
            RemoteError::TimedOut { peer, sent: true } => {
                write!(f, "no reply in time from {peer}; the request may have run")
            }
            RemoteError::TimedOut { peer, sent: false } => write!(f, "no reply in time from {peer}; it was not sent"),
            RemoteError::Unknown { peer, why } => {
                write!(f, "the connection to {peer} ended before a reply came; the request may have run: {why}")
            }
        }
    }
}

impl Error for RemoteError {}

impl RemoteError {
    /// Whether the request has run.
    pub fn fate(&self) -> Fate {
        match self {
            RemoteError::Unreachable { .. }
            | RemoteError::NoStage { .. }
            | RemoteError::Mismatch { .. }
            | RemoteError::Malformed(_)
            | RemoteError::TooLarge(_)
            | RemoteError::TimedOut { sent: false, .. } => Fate::NotRun,
            RemoteError::Failed(_) | RemoteError::Panicked(_) | RemoteError::Reply(_) => Fate::Ran,
            RemoteError::TimedOut { sent: true, .. } | RemoteError::Unknown { .. } => Fate::Unknown,
        }
    }
}

impl RemoteError {
    /// Finds a `RemoteError` in a box, also inside the error of a stage of replicas.
    fn find(error: &BoxError) -> Option<&RemoteError> {
        match error.downcast_ref::<StageError<BoxError>>() {
            Some(StageError::Service(error)) => error.downcast_ref(),
            _ => error.downcast_ref(),
        }
    }
}

impl Fate {
    /// The fate of the request according to an error of a remote stage, also where middleware or a
    /// stage of [replicas](crate::Replicated) has wrapped it.
    ///
    /// ```
    /// use dapple_stage::{Fate, RemoteError};
    /// use dapple_stage::{BoxError, Reason, Refused};
    /// use std::time::Duration;
    ///
    /// let refused: BoxError = Refused::new(Reason::Stopping, Duration::ZERO).into();
    /// assert_eq!(Fate::of(&refused), Fate::NotRun);
    /// let failed: BoxError = RemoteError::Failed("disk full".to_owned()).into();
    /// assert_eq!(Fate::of(&failed), Fate::Ran);
    /// assert_eq!(Fate::of(&"something else".into()), Fate::Unknown);
    /// ```
    pub fn of(error: &BoxError) -> Fate {
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
        while let Some(this) = error {
            if this.is::<Refused>() {
                return Fate::NotRun;
            }
            if let Some(remote) = this.downcast_ref::<RemoteError>() {
                return remote.fate();
            }
            match this.downcast_ref::<StageError<BoxError>>() {
                Some(StageError::Service(error)) => return Fate::of(error),
                Some(StageError::Panicked(_)) => return Fate::Ran,
                _ => {}
            }
            error = this.source();
        }
        Fate::Unknown
    }
}

/// Judges by the fate of a request: what its end says about the replica, for a
/// [`Balance`](dapple_tower::balance::Balance), and whether it may be sent again, for
/// [`Attempts`](dapple_tower::middleware::retry::Attempts).
///
/// A handler's error is no failure of the replica. A replica without a connection is out of service
/// until it has one again. A request is sent again only if it has certainly not run and may succeed
/// elsewhere or later, so nothing runs twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByFate;

impl<Res> Classify<Res> for ByFate {
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome {
        result.as_ref().map_or_else(ByFate::outcome_of, |_| Outcome::Success)
    }
}

impl ByFate {
    /// The outcome for the replica of an error.
    pub(crate) fn outcome_of(error: &BoxError) -> Outcome {
        if let Some(refused) = Refused::find(&**error) {
            return match refused.reason {
                Reason::Unavailable | Reason::Stopping => Outcome::Down,
                _ => Outcome::Refused,
            };
        }
        match RemoteError::find(error) {
            Some(RemoteError::Unreachable { .. } | RemoteError::Unknown { .. }) => Outcome::Down,
            Some(RemoteError::Failed(_) | RemoteError::Malformed(_) | RemoteError::TooLarge(_)) => Outcome::Success,
            _ => Outcome::Failure,
        }
    }
}

impl<Res> Judge<Res> for ByFate {
    fn judge(&self, result: &Result<Res, BoxError>) -> Verdict {
        let Err(error) = result else { return Verdict::Done };
        if Fate::of(error) != Fate::NotRun {
            return Verdict::Done;
        }
        match (Refused::find(&**error), RemoteError::find(error)) {
            (Some(Refused { reason: Reason::Deadline, .. }), _) => Verdict::Done,
            (Some(refused), _) => Verdict::After(refused.retry_after),
            // The balance knows the other replicas, and when this one is reachable again.
            (None, Some(RemoteError::Unreachable { .. })) => Verdict::Again,
            (None, _) => Verdict::Done,
        }
    }
}
