//! A throttled service.

use std::fmt;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::future::ResponseFuture;
use super::key::Key;
use super::shared::Throttle;
use crate::BoxError;

/// Wraps services with a [`Throttled`], all with one throttle.
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::throttle::{Rate, Throttle, ThrottleLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// // Each client has its share of 1,000 bytes a second, and a burst of as much for all.
/// let throttle = Throttle::fair(Rate::per_second(1_000));
/// let service = ServiceBuilder::new()
///     .layer(ThrottleLayer::new(throttle, |(client, body): &(u64, Vec<u8>)| (*client, body.len() as u64)))
///     .service(service_fn(async |(_, body): (u64, Vec<u8>)| Ok::<_, BoxError>(body.len())));
/// assert_eq!(dapple_sched::block_on(service.oneshot((7, vec![0; 100]))).unwrap(), 100);
/// ```
pub struct ThrottleLayer<K, D> {
    throttle: Throttle<K>,
    describe: D,
}

impl<K: Key, D> ThrottleLayer<K, D> {
    /// `describe` returns the key of a request, and its cost: a closure of `&Req`.
    pub fn new<Req>(throttle: Throttle<K>, describe: D) -> ThrottleLayer<K, D>
    where
        D: Fn(&Req) -> (K, u64),
    {
        ThrottleLayer { throttle, describe }
    }
}

impl<S, K, D: Clone> Layer<S> for ThrottleLayer<K, D> {
    type Service = Throttled<S, K, D>;

    fn layer(&self, inner: S) -> Throttled<S, K, D> {
        Throttled { inner, throttle: self.throttle.clone(), describe: self.describe.clone() }
    }
}

/// Passes requests on at the rate of a [`Throttle`]: each queues by its key and cost, and then
/// waits for the service.
///
/// It is always ready, because the order depends on the requests. The throttle bounds the line, and
/// refuses beyond that with a [`Refused`](crate::Refused).
///
/// Cancel safe: dropping a response future leaves the line, and gives the grant back if the service
/// has not been called.
pub struct Throttled<S, K, D> {
    inner: S,
    throttle: Throttle<K>,
    describe: D,
}

impl<S, K, D> Throttled<S, K, D> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The throttle; its clones are the same one.
    pub fn throttle(&self) -> &Throttle<K> {
        &self.throttle
    }
}

impl<S, K, D, Req> Service<Req> for Throttled<S, K, D>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    K: Key,
    D: Fn(&Req) -> (K, u64),
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<K, S, Req, S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (key, cost) = (self.describe)(&request);
        ResponseFuture::new(self.throttle.until_ready(&key, cost), self.inner.clone(), request)
    }
}

impl<S: Clone, K, D: Clone> Clone for Throttled<S, K, D> {
    fn clone(&self) -> Throttled<S, K, D> {
        let (inner, describe) = (self.inner.clone(), self.describe.clone());
        Throttled { inner, throttle: self.throttle.clone(), describe }
    }
}

impl<K, D: Clone> Clone for ThrottleLayer<K, D> {
    fn clone(&self) -> ThrottleLayer<K, D> {
        ThrottleLayer { throttle: self.throttle.clone(), describe: self.describe.clone() }
    }
}

impl<S, K, D> fmt::Debug for Throttled<S, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttled").field("throttle", &self.throttle).finish_non_exhaustive()
    }
}

impl<K, D> fmt::Debug for ThrottleLayer<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer").field("throttle", &self.throttle).finish_non_exhaustive()
    }
}
