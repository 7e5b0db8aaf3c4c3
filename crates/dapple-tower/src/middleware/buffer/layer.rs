//! The layer.

use std::fmt;
use std::marker::PhantomData;

use tower_layer::Layer;
use tower_service::Service;

use super::Buffer;
use crate::BoxError;

/// Wraps services with a [`Buffer`].
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::BufferLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let service = ServiceBuilder::new()
///     .layer(BufferLayer::new(16))
///     .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
pub struct BufferLayer<Req> {
    bound: usize,
    of: PhantomData<fn(Req)>,
}

impl<Req> BufferLayer<Req> {
    /// At most `bound` requests wait for each service; at least one.
    pub const fn new(bound: usize) -> BufferLayer<Req> {
        BufferLayer { bound, of: PhantomData }
    }
}

impl<S, Req> Layer<S> for BufferLayer<Req>
where
    S: Service<Req> + Send + 'static,
    S::Error: Into<BoxError>,
{
    type Service = Buffer<Req, S::Future>;

    fn layer(&self, service: S) -> Self::Service {
        Buffer::new(service, self.bound)
    }
}

impl<Req> Clone for BufferLayer<Req> {
    fn clone(&self) -> BufferLayer<Req> {
        BufferLayer::new(self.bound)
    }
}

impl<Req> fmt::Debug for BufferLayer<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferLayer").field("bound", &self.bound).finish()
    }
}
