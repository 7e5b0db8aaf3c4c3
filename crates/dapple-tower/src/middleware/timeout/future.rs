//! The response, or the expiry of its limit.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::BoxError;
use crate::time::Sleep;

pin_project! {
    /// The response of a [`Timeout`](super::Timeout). Cancel safe as that of the service is.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        #[pin]
        response: F,
        sleep: Sleep,
        limit: Duration,
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn new(response: F, sleep: Sleep, limit: Duration) -> ResponseFuture<F> {
        ResponseFuture { response, sleep, limit }
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(result) = this.response.poll(cx) {
            return Poll::Ready(result.map_err(Into::into));
        }
        ready!(Pin::new(this.sleep).poll(cx));
        Poll::Ready(Err(Elapsed { limit: *this.limit }.into()))
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// There was no response in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elapsed {
    /// The limit.
    pub limit: Duration,
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no response within {:?}", self.limit)
    }
}

impl Error for Elapsed {}
