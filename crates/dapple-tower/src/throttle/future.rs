//! A response that waits for its turn, then for the service, and then for the reply.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::grant::Grant;
use super::key::Key;
use super::until::UntilReady;
use crate::BoxError;

pin_project! {
    /// The response of a [`Throttled`](super::Throttled).
    ///
    /// Cancel safe: dropping it leaves the line, or gives the grant back if the service has not
    /// been called.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<K, S, Req, F>
    where
        K: Key,
    {
        service: S,
        request: Option<Req>,
        #[pin]
        state: State<K, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<K, F>
    where
        K: Key,
    {
        InLine { waits: UntilReady<K> },
        MayGo { grant: Option<Grant<K>> },
        Called { #[pin] response: F },
    }
}

impl<K: Key, S, Req, F> ResponseFuture<K, S, Req, F> {
    pub(super) fn new(waits: UntilReady<K>, service: S, request: Req) -> ResponseFuture<K, S, Req, F> {
        ResponseFuture { service, request: Some(request), state: State::InLine { waits } }
    }
}

impl<K, S, Req> Future for ResponseFuture<K, S, Req, S::Future>
where
    K: Key,
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::InLine { waits } => State::MayGo { grant: Some(ready!(Grant::poll(waits, cx))?) },
                StateProj::MayGo { grant } => {
                    ready!(this.service.poll_ready(cx)).map_err(Into::into)?;
                    if let Some(grant) = grant.take() {
                        grant.spend();
                    }
                    let request = this.request.take().expect("the request is here until the service is called");
                    State::Called { response: this.service.call(request) }
                }
                StateProj::Called { response } => return response.poll(cx).map_err(Into::into),
            };
            this.state.set(next);
        }
    }
}

impl<K: Key, S, Req, F> fmt::Debug for ResponseFuture<K, S, Req, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::InLine { .. } => "in line",
            State::MayGo { .. } => "waits for the service to be ready",
            State::Called { .. } => "called",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
