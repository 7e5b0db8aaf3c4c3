//! A response that has a place.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::OwnedSemaphorePermit;
use pin_project_lite::pin_project;

pin_project! {
    /// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit).
    ///
    /// Cancel safe as that of the service is: dropped, it gives its place to the next.
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
        // Whoever keeps a future that is done keeps no place.
        *this.permit = None;
        Poll::Ready(output)
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
