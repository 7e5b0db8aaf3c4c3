//! Refusal instead of a queue.

mod future;
mod layer;

pub use self::future::ResponseFuture;
pub use self::layer::ShedLayer;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tower_service::Service;

use super::shedding::{self, Said};
use crate::{BoxError, Reason, Refused};

/// Refuses a request when an inner limit is reached, with the limit's own [`Refused`], instead of
/// letting it wait. As tower's `LoadShed`, but without its false refusals.
///
/// With limits of this crate inside, it refuses only for those. If they have room and the service
/// behind them is not ready, it waits. It never enters their queues, in which it would get permits
/// that it no longer wants. It checks again when the request comes, because there may be room by
/// then. Around any other service it refuses when that is not ready, with [`Reason::Busy`].
///
/// ```
/// use dapple_tower::middleware::{ConcurrencyLimitLayer, ShedLayer};
/// use dapple_tower::{BoxError, Reason, Refused};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// let mut service = ServiceBuilder::new()
///     .layer(ShedLayer::new())
///     .layer(ConcurrencyLimitLayer::new(1))
///     .service(service_fn(|(): ()| std::future::pending::<Result<(), BoxError>>()));
/// dapple_sched::block_on(async {
///     let _occupies = service.ready().await?.call(());
///     let error = service.ready().await?.call(()).await.unwrap_err();
///     assert_eq!(Refused::find(&*error).unwrap().reason, Reason::Busy);
///     Ok::<(), BoxError>(())
/// })?;
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Debug)]
pub struct Shed<S> {
    inner: S,
    is_ready: bool,
}

impl<S> Shed<S> {
    /// Refuses requests that find no room in `inner`.
    pub const fn new(inner: S) -> Shed<S> {
        Shed { inner, is_ready: false }
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

impl<S, Req> Service<Req> for Shed<S>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.is_ready = false;
        match shedding::ask(|| self.inner.poll_ready(cx)) {
            (Poll::Ready(result), _) => {
                self.is_ready = result.is_ok();
                Poll::Ready(result.map_err(Into::into))
            }
            (Poll::Pending, Said::Room) => Poll::Pending,
            (Poll::Pending, Said::Declined(_) | Said::Nothing) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Req) -> Self::Future {
        if !self.is_ready {
            // Poll now; the last check of readiness may be long ago.
            let mut cx = Context::from_waker(Waker::noop());
            match shedding::ask(|| self.inner.poll_ready(&mut cx)) {
                (Poll::Ready(Ok(())), _) => {}
                (Poll::Ready(Err(error)), _) => return ResponseFuture::failed(error.into()),
                (Poll::Pending, Said::Declined(refused)) => return ResponseFuture::failed(refused.into()),
                (Poll::Pending, _) => {
                    return ResponseFuture::failed(Refused::new(Reason::Busy, Duration::ZERO).into());
                }
            }
        }
        self.is_ready = false;
        ResponseFuture::called(self.inner.call(request))
    }
}

/// Not ready, even if the original is.
impl<S: Clone> Clone for Shed<S> {
    fn clone(&self) -> Shed<S> {
        Shed::new(self.inner.clone())
    }
}
