//! The way from the queue to a replica, and what its answer says about it.

use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_tower::balance::Outcome;
use tower_service::Service;

use super::set::Set;
use crate::stage::StageError;
use crate::stage::handler::BoxFuture;
use crate::{BoxError, ByFate, Reason, Refused, RemoteError};

/// Judges an answer: its outcome for the replica, and the answer for the caller.
pub(super) type Judge<Resp, E> = fn(Answer<Resp, E>) -> (Outcome, Answer<Resp, E>);

type Answer<Resp, E> = Result<Resp, StageError<E>>;

/// For a replica in this process: its stage supervises its own handlers.
pub(super) fn judge_own<Resp, E>(answer: Answer<Resp, E>) -> (Outcome, Answer<Resp, E>) {
    let outcome = match &answer {
        Err(StageError::Refused(refused)) if is_gone(refused) => Outcome::Canceled,
        Err(StageError::Refused(_)) => Outcome::Refused,
        Ok(_) | Err(_) => Outcome::Success,
    };
    (outcome, answer)
}

/// For a replica anywhere. Its refusals become refusals of the stage.
pub(super) fn judge_any<Resp>(answer: Answer<Resp, BoxError>) -> (Outcome, Answer<Resp, BoxError>) {
    let Err(StageError::Service(error)) = answer else { return judge_own(answer) };
    let outcome = outcome_of(&error);
    match error.downcast::<Refused>() {
        Ok(refused) => (outcome, Err(StageError::Refused(*refused))),
        Err(error) => (outcome, Err(StageError::Service(error))),
    }
}

fn outcome_of(error: &BoxError) -> Outcome {
    match Refused::find(&**error) {
        Some(refused) if is_gone(refused) => return Outcome::Down,
        Some(_) => return Outcome::Refused,
        None => {}
    }
    if error.is::<RemoteError>() {
        return ByFate::outcome_of(error);
    }
    // A handler's error is no failure of the replica.
    Outcome::Success
}

fn is_gone(refused: &Refused) -> bool {
    matches!(refused.reason, Reason::Unavailable | Reason::Stopping)
}

/// The handler of a replicated stage: passes each request to a replica.
pub(super) struct Router<Req, Resp, E>(pub(super) Arc<Set<Req, Resp, E>>)
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static;

impl<Req, Resp, E> Clone for Router<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn clone(&self) -> Self {
        Router(self.0.clone())
    }
}

impl<Req, Resp, E> Service<Req> for Router<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Response = Resp;
    type Error = StageError<E>;
    type Future = BoxFuture<Answer<Resp, E>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let set = self.0.clone();
        Box::pin(async move {
            // Held to the end, so that the replica knows when its last request has ended.
            let mut picked = set.pick().await?;
            picked.start();
            let answer = picked.value().stage.ask(request).now().await;
            let (outcome, answer) = (set.judge)(answer);
            picked.report(outcome);
            answer
        })
    }
}
