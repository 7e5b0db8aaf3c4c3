//! A shared service with a bounded queue.

mod error;
mod future;
mod layer;
mod queue;

pub use self::error::ServiceError;
pub use self::future::ResponseFuture;
pub use self::layer::BufferLayer;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::Semaphore;
use tower_service::Service;

use self::queue::Queue;
use super::concurrency_limit::PermitWait;
use crate::{BoxError, Reason, Refused};

/// Puts a bounded queue in front of a service, so that its clones share one service that cannot be
/// cloned. As tower's `Buffer`, but without a worker to spawn.
///
/// `poll_ready` waits for a place in the queue; with a [`Shed`](super::Shed) around it, a full
/// queue refuses with [`Reason::Full`]. Requests reach the service in the order of their calls,
/// when it is ready; callers await their responses concurrently.
///
/// **Any caller that awaits a response drives the queue** for all: it polls the service for
/// readiness, and hands requests over. So there is no task, no executor to choose and nothing to
/// shut down. In return, a response future that was polled must be polled again when it is woken,
/// or dropped, because others may wait for its turn. (The next request of any caller takes the turn
/// over.)
///
/// If the service's `poll_ready` fails or the service panics, all clones fail from then on with
/// [`ServiceError`].
///
/// Cancel safe: dropping a response future removes its request from the queue, if that has not
/// reached the service.
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::Buffer;
/// use tower::{ServiceExt, service_fn};
///
/// let mut sum = 0;
/// let counts = service_fn(move |n: u32| {
///     sum += n;
///     let now = sum;
///     async move { Ok::<_, BoxError>(now) }
/// });
/// let buffer = Buffer::new(counts, 16);
/// dapple_sched::block_on(async {
///     assert_eq!(buffer.clone().oneshot(1).await.unwrap(), 1);
///     assert_eq!(buffer.clone().oneshot(2).await.unwrap(), 3);
/// });
/// ```
pub struct Buffer<Req, F> {
    queue: Arc<Queue<Req, F>>,
    place: PermitWait,
    bound: usize,
}

impl<Req, F> Buffer<Req, F> {
    /// At most `bound` requests wait for `service`; at least one.
    pub fn new<S>(service: S, bound: usize) -> Buffer<Req, F>
    where
        S: Service<Req, Future = F> + Send + 'static,
        S::Error: Into<BoxError>,
    {
        let bound = bound.clamp(1, Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(bound));
        Buffer { queue: Arc::new(Queue::new(service, places.clone())), place: PermitWait::new(places), bound }
    }

    /// The number of requests that wait for the service.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<Req, F, Res, E> Service<Req> for Buffer<Req, F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Response = Res;
    type Error = BoxError;
    type Future = ResponseFuture<Req, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(error) = self.queue.failure() {
            return Poll::Ready(Err(error.into()));
        }
        let bound = self.bound;
        match self.place.poll_taken(cx, || Refused::new(Reason::Full { len: bound }, Duration::ZERO)) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            // The queue may have failed since: then no place comes any more, and a later caller
            // would never be woken.
            Poll::Pending => self.queue.failure().map_or(Poll::Pending, |error| Poll::Ready(Err(error.into()))),
        }
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let permit =
            self.place.take().expect("a request was sent to a service that was not ready: await poll_ready first");
        ResponseFuture::new(self.queue.clone(), request, permit)
    }
}

/// For the same service, without the place that the original may hold.
impl<Req, F> Clone for Buffer<Req, F> {
    fn clone(&self) -> Buffer<Req, F> {
        Buffer { queue: self.queue.clone(), place: self.place.clone(), bound: self.bound }
    }
}

impl<Req, F> fmt::Debug for Buffer<Req, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("bound", &self.bound).finish_non_exhaustive()
    }
}
