//! A response that holds a place.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::OwnedSemaphorePermit;
use pin_project_lite::pin_project;

pin_project! {
    /// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit).
    ///
    /// Cancel safe as the service's future is: dropping it gives its place to the next.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        #[pin]
        response: F,
        permit: Option<OwnedSemaphorePermit>,
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn new(response: F, permit: OwnedSemaphorePermit) -> ResponseFuture<F> {
        ResponseFuture { response, permit: Some(permit) }
    }
}

impl<F: Future> Future for ResponseFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.response.poll(cx));
        // A finished future that is kept must not keep a place.
        *this.permit = None;
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
