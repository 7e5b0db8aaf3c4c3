//! The layer.

use tower_layer::Layer;

use super::Retry;

/// Wraps services with a [`Retry`].
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::{Backoff, BoxError};
/// use dapple_tower::middleware::retry::{Attempts, Budget, RetryLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let policy = Attempts::new(3)
///     .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)))
///     .budget(Budget::default());
/// let service = ServiceBuilder::new()
///     .layer(RetryLayer::new(policy))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer<P> {
    policy: P,
}

impl<P> RetryLayer<P> {
    /// Each service gets a clone of the policy.
    pub const fn new(policy: P) -> RetryLayer<P> {
        RetryLayer { policy }
    }
}

impl<P: Clone, S> Layer<S> for RetryLayer<P> {
    type Service = Retry<P, S>;

    fn layer(&self, service: S) -> Retry<P, S> {
        Retry::new(self.policy.clone(), service)
    }
}
