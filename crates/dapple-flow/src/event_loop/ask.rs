//! A request to an event loop as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::LoopError;
use super::link::{Link, Responder};
use dapple_sync::sync::limit::Turn;
use dapple_sync::sync::oneshot;

/// See [`Loop::ask`](super::Loop::ask).
#[must_use = "futures do nothing unless awaited"]
pub struct Ask<Q: Send + 'static, A: Send + 'static> {
    link: Arc<Link<Q, A>>,
    stage: AskState<Q, A>,
}

enum AskState<Q, A> {
    /// The request waits for room in the inbox.
    New {
        request: Option<Q>,
        turn: Turn,
    },
    Asked(oneshot::Receiver<Result<A, LoopError>>),
    Done,
}

impl<Q: Send + 'static, A: Send + 'static> Ask<Q, A> {
    pub(super) fn new(link: Arc<Link<Q, A>>, request: Q) -> Self {
        Ask { link, stage: AskState::New { request: Some(request), turn: Turn::default() } }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Unpin for Ask<Q, A> {}

impl<Q: Send + 'static, A: Send + 'static> Future for Ask<Q, A> {
    type Output = Result<A, LoopError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let AskState::New { request, turn } = &mut this.stage {
            match this.link.poll_room(turn, cx.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {
                    let (sender, receiver) = oneshot::channel();
                    let request = request.take().expect("handed over once");
                    this.link.push_taken(request, Responder::Task(sender));
                    this.stage = AskState::Asked(receiver);
                }
                Poll::Ready(Err(end)) => {
                    this.stage = AskState::Done;
                    return Poll::Ready(Err(end));
                }
            }
        }
        let AskState::Asked(answer) = &mut this.stage else { panic!("polled after it resolved") };
        match Pin::new(answer).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                this.stage = AskState::Done;
                // `None` if the answer was lost, which a responder does not do.
                Poll::Ready(answer.unwrap_or(Err(LoopError::Unanswered)))
            }
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Ask<Q, A> {
    fn drop(&mut self) {
        if let AskState::New { turn, .. } = &mut self.stage
            && turn.is_some()
        {
            self.link.leave(turn);
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> fmt::Debug for Ask<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            AskState::New { .. } => "waiting for room",
            AskState::Asked(_) => "asked",
            AskState::Done => "done",
        };
        f.debug_tuple("Ask").field(&stage).finish()
    }
}
