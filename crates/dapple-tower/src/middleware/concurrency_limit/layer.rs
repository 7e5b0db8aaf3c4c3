//! The layers.

use std::sync::Arc;

use dapple_sync::sync::Semaphore;
use tower_layer::Layer;

use super::ConcurrencyLimit;

/// Wraps services with a [`ConcurrencyLimit`], each with its own limit.
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::ConcurrencyLimitLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(ConcurrencyLimitLayer::new(10))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimitLayer {
    max: usize,
}

impl ConcurrencyLimitLayer {
    /// Admits at most `max` requests to each service.
    pub const fn new(max: usize) -> ConcurrencyLimitLayer {
        ConcurrencyLimitLayer { max }
    }
}

impl<S> Layer<S> for ConcurrencyLimitLayer {
    type Service = ConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S> {
        ConcurrencyLimit::new(inner, self.max)
    }
}

/// Wraps services with a [`ConcurrencyLimit`], with one limit for all of them.
#[derive(Clone, Debug)]
pub struct GlobalConcurrencyLimitLayer {
    semaphore: Arc<Semaphore>,
}

impl GlobalConcurrencyLimitLayer {
    /// Admits at most `max` requests to all services together.
    pub fn new(max: usize) -> GlobalConcurrencyLimitLayer {
        GlobalConcurrencyLimitLayer { semaphore: super::semaphore(max) }
    }

    /// Uses the permits of a semaphore.
    pub const fn with_semaphore(semaphore: Arc<Semaphore>) -> GlobalConcurrencyLimitLayer {
        GlobalConcurrencyLimitLayer { semaphore }
    }
}

impl<S> Layer<S> for GlobalConcurrencyLimitLayer {
    type Service = ConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S> {
        ConcurrencyLimit::with_semaphore(inner, self.semaphore.clone())
    }
}
