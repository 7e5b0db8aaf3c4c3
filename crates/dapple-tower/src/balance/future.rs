//! The response of a balanced request.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::classify::Classify;
use super::picked::Picked;
use crate::{BoxError, Refused};

pin_project! {
    /// The response of a [`Balance`](super::Balance).
    ///
    /// Cancel safe as the replica's future is: dropping it gives the request up, which is no longer
    /// in flight.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F, P, C> {
        #[pin]
        state: State<F, P, C>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, P, C> {
        Called { #[pin] response: F, picked: Option<P>, classify: C },
        Refused { refused: Option<Refused> },
    }
}

impl<F, P, C> ResponseFuture<F, P, C> {
    pub(super) fn new(response: F, picked: P, classify: C) -> Self {
        ResponseFuture { state: State::Called { response, picked: Some(picked), classify } }
    }

    pub(super) fn refused(refused: Refused) -> Self {
        ResponseFuture { state: State::Refused { refused: Some(refused) } }
    }
}

impl<F, K, S, C, Res, E> Future for ResponseFuture<F, Picked<K, S>, C>
where
    F: Future<Output = Result<Res, E>>,
    E: Into<BoxError>,
    K: Clone + Eq + Hash,
    S: Clone,
    C: Classify<Res>,
{
    type Output = Result<Res, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Called { response, picked, classify } => {
                let result = ready!(response.poll(cx)).map_err(Into::into);
                if let Some(mut picked) = picked.take() {
                    picked.report(classify.classify(&result));
                }
                Poll::Ready(result)
            }
            StateProj::Refused { refused } => {
                let refused = refused.take().expect("a future that is done is not polled again");
                Poll::Ready(Err(refused.into()))
            }
        }
    }
}

impl<F, P, C> fmt::Debug for ResponseFuture<F, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
