//! A limit on the requests in service.

mod future;
mod layer;
mod place;

pub use self::future::ResponseFuture;
pub use self::layer::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer};

pub(super) use self::place::PermitWait;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::Semaphore;
use tower_service::Service;

use super::shedding;
use crate::{Reason, Refused};

/// Admits at most this many requests to a service at a time; the others wait in `poll_ready`, in
/// order. As tower's `ConcurrencyLimit`.
///
/// Clones share the limit. A request counts until its response future is ready or dropped. With a
/// [`Shed`](super::Shed) around it, a request without room is refused instead of waiting.
///
/// A clone that is dropped while it waits, or with an unused place, gives the place to the next.
///
/// ```
/// use dapple_tower::BoxError;
/// use dapple_tower::middleware::ConcurrencyLimit;
/// use tower::{ServiceExt, service_fn};
///
/// let service = ConcurrencyLimit::new(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)), 10);
/// assert_eq!(dapple_sched::block_on(service.oneshot(1)).unwrap(), 2);
/// ```
#[derive(Debug)]
pub struct ConcurrencyLimit<S> {
    inner: S,
    place: PermitWait,
}

impl<S> ConcurrencyLimit<S> {
    /// Admits at most `max` requests; 0 admits none.
    pub fn new(inner: S, max: usize) -> ConcurrencyLimit<S> {
        ConcurrencyLimit::with_semaphore(inner, semaphore(max))
    }

    /// Shares the permits of a semaphore with its other users.
    pub fn with_semaphore(inner: S, semaphore: Arc<Semaphore>) -> ConcurrencyLimit<S> {
        ConcurrencyLimit { inner, place: PermitWait::new(semaphore) }
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
}

impl<S: Service<Req>, Req> Service<Req> for ConcurrencyLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.place.poll_taken(cx, || Refused::new(Reason::Busy, std::time::Duration::ZERO)));
        shedding::has_room();
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let permit =
            self.place.take().expect("a request was sent to a service that was not ready: await poll_ready first");
        ResponseFuture::new(self.inner.call(request), permit)
    }
}

/// With the same limit, and no place yet.
impl<S: Clone> Clone for ConcurrencyLimit<S> {
    fn clone(&self) -> ConcurrencyLimit<S> {
        ConcurrencyLimit { inner: self.inner.clone(), place: self.place.clone() }
    }
}

fn semaphore(max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)))
}
