//! A response, or a refusal.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::BoxError;

pin_project! {
    /// The response of a [`Shed`](super::Shed). Cancel safe as that of the service is.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Called { #[pin] response: F },
        Failed { error: Option<BoxError> },
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn called(response: F) -> ResponseFuture<F> {
        ResponseFuture { state: State::Called { response } }
    }

    pub(super) fn failed(error: BoxError) -> ResponseFuture<F> {
        ResponseFuture { state: State::Failed { error: Some(error) } }
    }
}

impl<F, Res, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Called { response } => response.poll(cx).map_err(Into::into),
            StateProj::Failed { error } => {
                Poll::Ready(Err(error.take().expect("a future that is done is not polled again")))
            }
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
