//! A limit on the time of a response.

mod future;
mod layer;

pub use self::future::{Elapsed, ResponseFuture};
pub use self::layer::TimeoutLayer;

use std::task::{Context, Poll};
use std::time::Duration;

use tower_service::Service;

use crate::BoxError;
use crate::time::Sleep;

/// Gives up on a response after a time. As tower's `Timeout`.
///
/// The time begins with the call. A response that takes longer is dropped, and fails with
/// [`Elapsed`].
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::timeout::{Elapsed, Timeout};
/// use tower::{ServiceExt, service_fn};
///
/// let never = service_fn(|(): ()| std::future::pending::<Result<(), BoxError>>());
/// let service = Timeout::new(never, Duration::from_millis(5));
/// let error = dapple_sched::block_on(service.oneshot(())).unwrap_err();
/// assert!(error.is::<Elapsed>());
/// ```
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<S> Timeout<S> {
    /// Waits for responses of `inner` no longer than `limit`.
    pub const fn new(inner: S, limit: Duration) -> Timeout<S> {
        Timeout { inner, limit }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req> Service<Req> for Timeout<S>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        ResponseFuture::new(self.inner.call(request), Sleep::new(self.limit), self.limit)
    }
}
