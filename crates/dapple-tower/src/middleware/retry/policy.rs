//! Who decides.

use std::future::Future;

use crate::BoxError;

/// Decides whether a request is sent again, and after what. As tower's; each request has a clone of it, from its first attempt on.
///
/// [`Attempts`](super::Attempts) is one that is ready to be used.
pub trait Policy<Req, Res, E = BoxError> {
    /// What to wait for before the next attempt.
    type Future: Future<Output = ()>;

    /// Told how an attempt ended; `Some` has the request sent again after that future. Request and result may be changed: the request
    /// before it is sent again, and the result before it is handed out.
    ///
    /// Not cancel safe: dropped instead of awaited, the attempt that it is for has been counted already.
    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<Self::Future>;

    /// A copy of the request to send again; `None` where it can be sent only once, and is never tried again.
    fn clone_request(&mut self, request: &Req) -> Option<Req>;
}
