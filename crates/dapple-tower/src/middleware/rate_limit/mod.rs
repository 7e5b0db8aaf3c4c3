//! A limit on how many requests begin in a stretch of time.

mod layer;

pub use self::layer::RateLimitLayer;

use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::shedding;
use crate::throttle::{Grant, Rate, Throttle, UntilReady};
use crate::{Reason, Refused};

/// Lets so many requests into a service in each stretch of time; the others wait in `poll_ready`, in order. As tower's `RateLimit`, but that
/// clones share the limit. With a [`Shed`](super::Shed) around it, what comes too early is refused with [`Reason::Rate`] and the time
/// to wait.
///
/// What was not used in one stretch is kept for the next, up to the number of one stretch.
///
/// A clone that is dropped while it waits leaves the line; one that may send a request and does not, gives that back.
///
/// The response is that of the service inside, and its future too.
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
    /// Lets requests into `inner` at this rate.
    pub fn new(inner: S, rate: Rate) -> RateLimit<S> {
        // A clone stands in line once, so that there are never more than clones.
        RateLimit::with_throttle(inner, Throttle::bucket(rate).waiting_max(usize::MAX))
    }

    fn with_throttle(inner: S, throttle: Throttle) -> RateLimit<S> {
        RateLimit { inner, throttle, waits: None, grant: None }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
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
        let granted = ready!(Grant::poll(waits, cx)).expect("a line without a bound takes everybody");
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

/// Has the same limit, and no place in line yet.
impl<S: Clone> Clone for RateLimit<S> {
    fn clone(&self) -> RateLimit<S> {
        RateLimit::with_throttle(self.inner.clone(), self.throttle.clone())
    }
}
