//! A [`Stage`] on a host: it gets the deadline, and the fate of a request keeps its meaning.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_stage::{Stage, StageError};
use dapple_tower::BoxError;
use tower_service::Service;

use crate::deadline::deadline;

/// Calls a stage.
pub(crate) struct Staged<Req: Send + 'static, Resp: Send + 'static, E: Send + 'static>(pub(crate) Stage<Req, Resp, E>);

/// A result of a stage that is neither a refusal nor an error of its handler.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("{0}")]
    Panicked(String),
    #[error("it was given up after {} ms in service", .0.as_millis())]
    Expired(std::time::Duration),
}

impl<Req: Send + 'static, Resp: Send + 'static, E: Send + 'static> Clone for Staged<Req, Resp, E> {
    fn clone(&self) -> Self {
        Staged(self.0.clone())
    }
}

impl<Req, Resp, E> Service<Req> for Staged<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    type Response = Resp;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Resp, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The wait for a slot in the queue is part of the call, which knows the deadline.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let ask = self.0.ask(request);
        let asked = match deadline() {
            Some(until) => ask.deadline(until.into_std()),
            None => ask,
        };
        let answer = asked.into_future();
        Box::pin(async move {
            answer.await.map_err(|error| match error {
                StageError::Refused(refused) => refused.into(),
                StageError::Service(error) => error.into(),
                StageError::Panicked(message) => Ended::Panicked(message).into(),
                StageError::Expired(after) => Ended::Expired(after).into(),
                // `Stopped`, the only other one.
                _ => "the stage's runtime stopped before there was a response".into(),
            })
        })
    }
}
