//! Classification: the meaning of a request's end for its replica.

use super::config::Outcome;
use crate::{BoxError, Reason, Refused};

/// Returns the meaning of a response for its replica. Closures implement it:
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::balance::{Classify, Outcome};
///
/// let by_status = |result: Result<&u16, &BoxError>| match result {
///     Ok(500..) | Err(_) => Outcome::Failure,
///     Ok(_) => Outcome::Success,
/// };
/// assert_eq!(by_status.classify(&Ok(503)), Outcome::Failure);
/// ```
pub trait Classify<Res> {
    /// The outcome for the replica.
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome;
}

impl<Res, F: Fn(Result<&Res, &BoxError>) -> Outcome> Classify<Res> for F {
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome {
        self(result.as_ref())
    }
}

/// Every error is a failure, except a [`Refused`]: "unavailable" and "stopping" mean that the
/// replica is down, all other reasons that it is up and busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByError;

impl<Res> Classify<Res> for ByError {
    fn classify(&self, result: &Result<Res, BoxError>) -> Outcome {
        match result {
            Ok(_) => Outcome::Success,
            Err(error) => match Refused::find(&**error) {
                Some(Refused { reason: Reason::Unavailable | Reason::Stopping, .. }) => Outcome::Down,
                Some(_) => Outcome::Refused,
                None => Outcome::Failure,
            },
        }
    }
}
