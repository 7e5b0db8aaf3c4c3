//! What can become of a request to another process.

use std::time::Duration;

use dapple_tower::balance::{Classify, Outcome};
use dapple_tower::middleware::retry::{Judge, Verdict};

use crate::{BoxError, Reason, Refused, StageError};

/// Whether a request has run, as far as its sender can know: what decides whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It has not run, and will not. Sending it again is safe.
    NotRun,
    /// Its handler ended, with this error.
    Ran,
    /// It was sent, and nothing is known since: it may have run, or may still do. Only what may happen twice may be sent again.
    Unknown,
}

/// What became of a request that has no reply. A host's refusal is no `RemoteError` but a [`Refused`], as it is in one process.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// There is no connection: the request was not sent.
    #[error("{peer} cannot be reached: {why}")]
    Unreachable {
        /// The address, as it was given.
        peer: String,
        /// What was tried, and how it failed.
        why: String,
        /// No attempt to connect is made before this has passed.
        retry_after: Duration,
    },
    /// The host has no stage of this name. Nothing has run.
    #[error("{peer} has no stage `{stage}`: {message}")]
    NoStage {
        /// The address, as it was given.
        peer: String,
        /// Who was asked for.
        stage: String,
        /// What the host says.
        message: String,
    },
    /// The stage takes other types than this side believes, or an encoding that the host does not know. Nothing has run.
    #[error("{peer} means other types by `{stage}`: {message}")]
    Mismatch {
        /// The address, as it was given.
        peer: String,
        /// Who was asked for.
        stage: String,
        /// Both schemas.
        message: String,
    },
    /// The request cannot be written as bytes, or the host cannot read it. Nothing has run.
    #[error("the request cannot be sent: {0}")]
    Malformed(String),
    /// The request is longer than this side sends, or the host takes. Nothing has run.
    #[error("the request is too long: {0}")]
    TooLarge(String),
    /// The handler ended with an error, whose text this is.
    #[error("the handler failed: {0}")]
    Failed(String),
    /// The handler panicked.
    #[error("the handler panicked: {0}")]
    Panicked(String),
    /// The handler has run, but its reply cannot be read: it is too long, or of another type.
    #[error("the reply cannot be read: {0}")]
    Reply(String),
    /// There was no reply in time. The host drops what it has not finished by then.
    #[error("no reply in time from {peer}{}", if *sent { "; the request may have run" } else { "; it was not sent" })]
    TimedOut {
        /// The address, as it was given.
        peer: String,
        /// Whether the request had been sent.
        sent: bool,
    },
    /// The request was sent, and then the connection ended.
    #[error("the connection to {peer} ended before a reply came; the request may have run: {why}")]
    Unknown {
        /// The address, as it was given.
        peer: String,
        /// How it ended.
        why: String,
    },
}

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
    /// The one in a box, if it is one, also where a stage of replicas has wrapped it.
    fn find(error: &BoxError) -> Option<&RemoteError> {
        match error.downcast_ref::<StageError<BoxError>>() {
            Some(StageError::Service(error)) => error.downcast_ref(),
            _ => error.downcast_ref(),
        }
    }
}

impl Fate {
    /// The fate of the request, as an error tells it: that of a remote stage, also where middleware or a stage of
    /// [replicas](crate::Replicated) has wrapped it.
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

/// Goes by what has become of a request: what its end says about the replica, for a [`Balance`](dapple_tower::balance::Balance), and whether it may be sent again,
/// for [`Attempts`](dapple_tower::middleware::retry::Attempts).
///
/// A handler that fails is no failure of the replica. A replica without a connection is out at once, until there is one. Sent again
/// is only what has surely not run, and may do better elsewhere or later: so nothing runs twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByFate;

impl<Res> Classify<Res> for ByFate {
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome {
        result.as_ref().map_or_else(ByFate::outcome_of, |_| Outcome::Success)
    }
}

impl ByFate {
    /// What an error says about the replica.
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
            // The balance knows others, and when this one is there again.
            (None, Some(RemoteError::Unreachable { .. })) => Verdict::Again,
            (None, _) => Verdict::Done,
        }
    }
}
