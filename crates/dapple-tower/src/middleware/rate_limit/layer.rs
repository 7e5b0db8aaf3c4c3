//! The layer.

use std::time::Duration;

use tower_layer::Layer;

use super::RateLimit;
use crate::throttle::Rate;

/// Wraps services with a [`RateLimit`], each with its own limit.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::RateLimitLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(100, Duration::from_secs(1)))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    rate: Rate,
}

impl RateLimitLayer {
    /// At most `num` requests in each period `per`.
    ///
    /// # Panics
    ///
    /// If either is zero.
    pub const fn new(num: u64, per: Duration) -> RateLimitLayer {
        RateLimitLayer { rate: Rate::new(num, per) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, self.rate)
    }
}
