//! The reasons why a task was not signed.

use std::convert::Infallible;

use dapple::stage::{PipelineError, Refused, StageError};

use crate::log::LogError;

/// The reason why a task was not signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing was done; the client may retry.
    Refused(Refused),
    /// Signing failed; the last field says why.
    Failed(Kind, String),
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The log has no room. Nothing of the task was kept.
    LogFull = 1,
    /// The log cannot be written.
    LogBroken = 2,
    /// The server has a bug, or is ending.
    Internal = 3,
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        let kind = match error {
            LogError::Full(_) => Kind::LogFull,
            LogError::Broken(_) | LogError::Closed(_) => Kind::LogBroken,
        };
        Failure::Failed(kind, error.to_string())
    }
}

impl From<Infallible> for Failure {
    fn from(error: Infallible) -> Failure {
        match error {}
    }
}

impl<E: Into<Failure>> From<StageError<E>> for Failure {
    fn from(error: StageError<E>) -> Failure {
        match error {
            StageError::Refused(refused) => Failure::Refused(refused),
            StageError::Service(error) => error.into(),
            StageError::Panicked(text) => Failure::Failed(Kind::Internal, format!("the server has a bug: {text}")),
            _ => Failure::Failed(Kind::Internal, "the server ended before the task was signed".to_owned()),
        }
    }
}

impl<A: Into<Failure>, B: Into<Failure>> From<PipelineError<A, B>> for Failure {
    fn from(error: PipelineError<A, B>) -> Failure {
        match error {
            PipelineError::First(error) => error.into(),
            PipelineError::Next(error) => error.into(),
            _ => Failure::Failed(Kind::Internal, "the server cannot say why".to_owned()),
        }
    }
}
