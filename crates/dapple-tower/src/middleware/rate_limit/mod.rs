//! A limit on the requests that begin per period.

mod layer;

pub use self::layer::RateLimitLayer;

use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::shedding;
use crate::throttle::{Grant, Rate, Throttle, UntilReady};
use crate::{Reason, Refused};

/// Admits this many requests to a service per period; the others wait in `poll_ready`, in order. As
/// tower's `RateLimit`, but clones share the limit. With a [`Shed`](super::Shed) around it, a
/// request that comes too early is refused with [`Reason::Rate`] and the time to wait.
///
/// The unused part of one period is kept for the next, up to the number of one period.
///
/// A clone that is dropped while it waits leaves the line; one with an unused permission gives it
/// back.
///
/// The response and its future are those of the inner service.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::RateLimit;
/// use dapple_tower::throttle::Rate;
/// use tower::{ServiceExt, service_fn};
///
/// let service = RateLimit::new(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)), Rate::new(2, Duration::from_millis(10)));
/// let start = std::time::Instant::now();
/// for n in 0..5 {
///     dapple_sched::block_on(service.clone().oneshot(n)).unwrap();
/// }
/// assert!(start.elapsed() >= Duration::from_millis(15));
/// ```
#[derive(Debug)]
pub struct RateLimit<S> {
    inner: S,
    throttle: Throttle,
    waits: Option<UntilReady>,
    grant: Option<Grant<()>>,
}

impl<S> RateLimit<S> {
    /// Admits requests to `inner` at this rate.
    pub fn new(inner: S, rate: Rate) -> RateLimit<S> {
        // A clone enters the line once, so the line is never longer than the number of clones.
        RateLimit::with_throttle(inner, Throttle::bucket(rate).waiting_max(usize::MAX))
    }

    fn with_throttle(inner: S, throttle: Throttle) -> RateLimit<S> {
        RateLimit { inner, throttle, waits: None, grant: None }
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

    fn poll_granted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.grant.is_some() {
            return Poll::Ready(());
        }
        if self.waits.is_none() && !shedding::would_wait() {
            match Grant::take(&self.throttle, (), 1) {
                Ok(grant) => self.grant = Some(grant),
                Err(refused) => {
                    shedding::decline(Refused::new(Reason::Rate, refused.retry_after));
                    return Poll::Pending;
                }
            }
            return Poll::Ready(());
        }
        let waits = self.waits.get_or_insert_with(|| self.throttle.until_ready(&(), 1));
        let granted = ready!(Grant::poll(waits, cx)).expect("an unbounded line refuses no clone");
        self.waits = None;
        self.grant = Some(granted);
        Poll::Ready(())
    }
}

impl<S: Service<Req>, Req> Service<Req> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.poll_granted(cx));
        shedding::has_room();
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> S::Future {
        let grant =
            self.grant.take().expect("a request was sent to a service that was not ready: await poll_ready first");
        grant.spend();
        self.inner.call(request)
    }
}

/// With the same limit, and not queued yet.
impl<S: Clone> Clone for RateLimit<S> {
    fn clone(&self) -> RateLimit<S> {
        RateLimit::with_throttle(self.inner.clone(), self.throttle.clone())
    }
}
