//! A response that waits for its request to reach the service, and then for the service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::OwnedSemaphorePermit;
use pin_project_lite::pin_project;

use super::queue::{Queue, Ticket};
use crate::BoxError;

pin_project! {
    /// The response of a [`Buffer`](super::Buffer).
    ///
    /// Cancel safe: dropping it removes its request from the queue, or drops the service's future.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<Req, F> {
        #[pin]
        state: State<Req, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Req, F> {
        Queued { ticket: Ticket<Req, F> },
        Called { #[pin] response: F },
    }
}

impl<Req, F> ResponseFuture<Req, F> {
    pub(super) fn new(queue: Arc<Queue<Req, F>>, request: Req, permit: OwnedSemaphorePermit) -> ResponseFuture<Req, F> {
        ResponseFuture { state: State::Queued { ticket: Ticket::new(queue, request, permit) } }
    }
}

impl<Req, F, Res, E> Future for ResponseFuture<Req, F>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let response = match this.state.as_mut().project() {
                StateProj::Queued { ticket } => ready!(ticket.poll_called(cx))?,
                StateProj::Called { response } => return response.poll(cx).map_err(Into::into),
            };
            this.state.set(State::Called { response });
        }
    }
}

impl<Req, F> fmt::Debug for ResponseFuture<Req, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_queued = matches!(self.state, State::Queued { .. });
        f.debug_struct("ResponseFuture").field("is_queued", &is_queued).finish_non_exhaustive()
    }
}
