//! The policy that decides about retries.

use std::future::Future;

use crate::BoxError;

/// Decides whether a request is sent again, and after which wait. As tower's; each request has its
/// own clone, from its first attempt on.
///
/// [`Attempts`](super::Attempts) is one for general use.
pub trait Policy<Req, Res, E = BoxError> {
    /// The wait before the next attempt.
    type Future: Future<Output = ()>;

    /// Gets the end of an attempt; `Some` sends the request again after that future. It may change
    /// request and result: the request before it is sent again, and the result before it is
    /// returned.
    ///
    /// Not cancel safe: if the future is dropped instead of awaited, its attempt has already been
    /// counted.
    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Self::Future>;

    /// A copy of the request for another attempt; `None` if it can be sent only once, and is never
    /// tried again.
    fn clone_request(&mut self, request: &Req) -> Option<Req>;
}
