//! The layer.

use std::time::Duration;

use tower_layer::Layer;

use super::Timeout;

/// Wraps services with a [`Timeout`].
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::TimeoutLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(TimeoutLayer::new(Duration::from_secs(60)))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct TimeoutLayer {
    limit: Duration,
}

impl TimeoutLayer {
    /// With this limit.
    pub const fn new(limit: Duration) -> TimeoutLayer {
        TimeoutLayer { limit }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout::new(inner, self.limit)
    }
}
