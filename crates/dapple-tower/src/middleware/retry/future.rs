//! The response of the last attempt.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Policy;
use crate::BoxError;

pin_project! {
    /// The response of a [`Retry`](super::Retry).
    ///
    /// Cancel safe as the service's future is: after it is dropped, no more attempts are made.
    // Parameters for the inner futures, instead of projections: through those, rustc cannot always
    // tell that a future is `Send` (rust-lang/rust#110338).
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<P, S, Req, F, W> {
        request: Option<Req>,
        policy: P,
        service: S,
        #[pin]
        state: State<F, W>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, W> {
        Called { #[pin] response: F },
        Waiting { #[pin] wait: W },
        Again,
    }
}

impl<P, S, Req, F, W> ResponseFuture<P, S, Req, F, W> {
    pub(super) fn new(request: Option<Req>, policy: P, service: S, response: F) -> Self {
        ResponseFuture { request, policy, service, state: State::Called { response } }
    }
}

impl<P, S, Req> Future for ResponseFuture<P, S, Req, S::Future, P::Future>
where
    P: Policy<Req, S::Response>,
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Called { response } => {
                    let mut result = ready!(response.poll(cx)).map_err(Into::into);
                    let wait = this.request.as_mut().and_then(|request| this.policy.retry(request, &mut result));
                    match wait {
                        Some(wait) => State::Waiting { wait },
                        None => return Poll::Ready(result),
                    }
                }
                StateProj::Waiting { wait } => {
                    ready!(wait.poll(cx));
                    State::Again
                }
                StateProj::Again => {
                    ready!(this.service.poll_ready(cx)).map_err(Into::into)?;
                    let request = this.request.take().expect("a retry needs a copy of the request");
                    *this.request = this.policy.clone_request(&request);
                    State::Called { response: this.service.call(request) }
                }
            };
            this.state.set(next);
        }
    }
}

impl<P, S, Req, F, W> fmt::Debug for ResponseFuture<P, S, Req, F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Called { .. } => "called",
            State::Waiting { .. } => "waits to try again",
            State::Again => "waits for the service to be ready",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
