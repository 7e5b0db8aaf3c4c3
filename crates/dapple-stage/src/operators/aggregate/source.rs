//! The sources of an aggregate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::oneshot;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::pump::{Aggregate, Entry, Shared, stopping};
use crate::BoxError;
use crate::operators::credits::Claim;
use dapple_sync::sync::limit::Limit;

/// One of many sources of an [`Aggregate`]. Clones are the same source, with the same room.
pub struct Source<M, F> {
    claim: Claim,
    place: Arc<SourceQueue<M, F>>,
}

/// The source's queue, which is removed after its last clone and its last waiting message.
struct SourceQueue<M, F> {
    aggregate: Aggregate<M, F>,
    key: u64,
}

impl<M, F> Source<M, F> {
    pub(super) fn new(aggregate: Aggregate<M, F>, key: u64, credits: Limit) -> Source<M, F> {
        Source { claim: Claim::new(credits), place: Arc::new(SourceQueue { aggregate, key }) }
    }
}

impl<M, F> Drop for SourceQueue<M, F> {
    fn drop(&mut self) {
        self.aggregate.shared.change(|state| state.merge.remove(self.key));
    }
}

impl<M, F, R, E> Service<M> for Source<M, F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Response = R;
    type Error = BoxError;
    type Future = Response<M, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.claim.poll_ready(cx).map(Ok)
    }

    /// # Panics
    /// If `poll_ready` was not ready.
    fn call(&mut self, message: M) -> Response<M, F> {
        let credit = self.claim.take().expect("await `poll_ready` before each `call`");
        let (reply, answer) = oneshot::channel();
        let entry = Entry { message, reply, credit };
        let shared = &self.place.aggregate.shared;
        match shared.push(self.place.key, entry) {
            Ok(ticket) => {
                let waiting = Waiting { shared: shared.clone(), key: self.place.key, ticket };
                Response { waiting: Some(waiting), answer: Some(answer), future: None }
            }
            Err(entry) => {
                let _answer_is_here = entry.reply.send(Err(stopping()));
                Response { waiting: None, answer: Some(answer), future: None }
            }
        }
    }
}

impl<M, F> Clone for Source<M, F> {
    fn clone(&self) -> Source<M, F> {
        Source { claim: self.claim.clone(), place: self.place.clone() }
    }
}

impl<M, F> fmt::Debug for Source<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("key", &self.place.key).finish_non_exhaustive()
    }
}

/// A waiting message. Dropping it removes it from the queue.
struct Waiting<M, F> {
    shared: Arc<Shared<M, F>>,
    key: u64,
    ticket: u64,
}

impl<M, F> Drop for Waiting<M, F> {
    fn drop(&mut self) {
        let entry = self.shared.cancel(self.key, self.ticket);
        drop(entry);
    }
}

pin_project! {
    /// The response to a message. Cancel safe: dropping it removes a message that still waits.
    #[must_use = "a dropped response removes its message from the queue"]
    pub struct Response<M, F> {
        waiting: Option<Waiting<M, F>>,
        answer: Option<oneshot::Receiver<Result<F, BoxError>>>,
        #[pin]
        future: Option<F>,
    }
}

impl<M, F, R, E> Future for Response<M, F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(answer) = this.answer.as_mut() {
            let answer = ready!(Pin::new(answer).poll(cx));
            *this.answer = None;
            *this.waiting = None;
            match answer.unwrap_or_else(|_| Err(stopping())) {
                Ok(future) => this.future.set(Some(future)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let future = this.future.as_pin_mut().expect("a future is not polled again when it has resolved");
        future.poll(cx).map_err(Into::into)
    }
}

impl<M, F> fmt::Debug for Response<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Response")
    }
}
