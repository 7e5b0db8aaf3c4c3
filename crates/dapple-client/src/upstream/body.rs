//! The body of a response on its way from a server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::{Instant, Sleep, sleep};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::lease::Lease;

/// The body of a response. At its end the connection is kept for the next request. If dropped
/// before its end, it closes the connection, or its stream. It reads only when the program asks for
/// more, so a slow reader slows the server down.
pub struct Download<B> {
    incoming: Incoming,
    patience: Pin<Box<Sleep>>,
    pause_max: Duration,
    lease: Lease<B>,
}

/// The reason why a body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body paused for too long.
    #[error("the server sent nothing for {0:?}")]
    TimedOut(Duration),
    /// The connection ended, or the server broke the rules.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

impl<B: Send + 'static> Download<B> {
    /// Creates the body of a response, in which no pause may exceed `pause_max`.
    pub fn new(incoming: Incoming, mut lease: Lease<B>, pause_max: Duration) -> Download<B> {
        if incoming.is_end_stream() {
            lease.give_back();
        }
        Download { incoming, patience: Box::pin(sleep(pause_max)), pause_max, lease }
    }

    /// The connection, and the request's turn at the server.
    pub fn lease(&self) -> &Lease<B> {
        &self.lease
    }
}

impl<B: Send + 'static> Body for Download<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            ready!(self.patience.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyError::TimedOut(self.pause_max))));
        };
        let deadline = Instant::now() + self.pause_max;
        self.patience.as_mut().reset(deadline);
        if frame.is_none() {
            self.lease.give_back();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<B> fmt::Debug for Download<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("lease", &self.lease).finish_non_exhaustive()
    }
}
