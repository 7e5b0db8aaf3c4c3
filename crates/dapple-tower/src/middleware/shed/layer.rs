//! The layer.

use tower_layer::Layer;

use super::Shed;

/// Wraps services with a [`Shed`]. Put it outside the limits for which it should refuse.
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::{ConcurrencyLimitLayer, ShedLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(ShedLayer::new())
///     .layer(ConcurrencyLimitLayer::new(10))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ShedLayer {}

impl ShedLayer {
    /// A layer without settings.
    pub const fn new() -> ShedLayer {
        ShedLayer {}
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed::new(inner)
    }
}
