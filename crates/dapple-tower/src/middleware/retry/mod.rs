//! Sends failed requests again.

mod budget;
mod future;
mod layer;
mod policy;
mod ready;

pub use self::budget::Budget;
pub use self::future::ResponseFuture;
pub use self::layer::RetryLayer;
pub use self::policy::Policy;
pub use self::ready::{Attempts, ByError, Judge, Verdict, Waiting};

use std::task::{Context, Poll};

use tower_service::Service;

use crate::BoxError;

/// Sends a request again while its [`Policy`] says so. As tower's `Retry`.
///
/// Policies get errors as [`BoxError`]s, for any error type of the service.
///
/// The service is cloned for each request, and each attempt waits until it is ready. Cancel safe as
/// the service is: after the response future is dropped, no more attempts are made.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::retry::{Attempts, Retry};
/// use tower::{ServiceExt, service_fn};
///
/// static CALLS: AtomicU32 = AtomicU32::new(0);
/// let fails_twice = service_fn(async |n: u32| match CALLS.fetch_add(1, Ordering::SeqCst) {
///     0 | 1 => Err(BoxError::from("not yet")),
///     _ => Ok(n + 1),
/// });
/// let service = Retry::new(Attempts::new(3), fails_twice);
/// assert_eq!(dapple_sched::block_on(service.oneshot(6)).unwrap(), 7);
/// ```
#[derive(Clone, Debug)]
pub struct Retry<P, S> {
    policy: P,
    service: S,
}

impl<P, S> Retry<P, S> {
    /// Sends requests to `service` as `policy` says.
    pub const fn new(policy: P, service: S) -> Retry<P, S> {
        Retry { policy, service }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.service
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.service
    }
}

impl<P, S, Req> Service<Req> for Retry<P, S>
where
    P: Policy<Req, S::Response> + Clone,
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<P, S, Req, S::Future, P::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let mut policy = self.policy.clone();
        let again = policy.clone_request(&request);
        let response = self.service.call(request);
        // This call has used up the readiness; the clone gets ready for itself when it is needed.
        ResponseFuture::new(again, policy, self.service.clone(), response)
    }
}
