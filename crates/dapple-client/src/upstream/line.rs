//! The connection that carries a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;

use super::Turn;
use super::lease::Lease;
use super::pool::{Pool, Sender1, Stream};

/// A connection for one request. The form of the head depends on the version, see [`is_h2`](Line::is_h2).
pub struct Line<B>(pub(super) Kind<B>);

/// The version, with its sender.
pub(super) enum Kind<B> {
    One(Sender1<B>),
    Many(Stream<B>),
}

/// A future of the response. Its error says whether the request was sent. If dropped, it cancels
/// the request.
pub type Respond<B> = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Unanswered<B>>> + Send>>;

/// The reason why there is no response.
pub struct Unanswered<B> {
    /// Hyper's error.
    pub error: hyper::Error,
    /// The request, if no part of it has left this machine.
    pub unsent: Option<Box<Request<B>>>,
}

impl<B> Line<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Whether HTTP/2 is spoken.
    pub fn is_h2(&self) -> bool {
        matches!(self.0, Kind::Many(_))
    }

    /// Passes the request to its connection. A connection that ends at this moment may leave the
    /// request in its queue for as long as a sender exists, so no sender of an ended connection is
    /// kept.
    pub fn send(self, request: Request<B>, turn: Turn<B>) -> (Respond<B>, Lease<B>) {
        match self.0 {
            Kind::One(mut sender) => {
                let responding = sender.try_send_request(request);
                let respond: Respond<B> = Box::pin(async move { responding.await.map_err(Unanswered::of) });
                let sender = Some(sender).filter(|sender| !sender.is_closed());
                (respond, Lease { turn, sender, stream: None, rest: None })
            }
            Kind::Many(mut stream) => {
                let responding = stream.sender.try_send_request(request);
                let respond: Respond<B> = Box::pin(async move { responding.await.map_err(Unanswered::of) });
                let stream = Some(stream).filter(|stream| !stream.sender.is_closed());
                if stream.is_none() {
                    turn.host.with_pool(Pool::drop_closed);
                }
                (respond, Lease { turn, sender: None, stream, rest: None })
            }
        }
    }
}

impl<B> Unanswered<B> {
    pub(super) fn of(mut error: TrySendError<Request<B>>) -> Unanswered<B> {
        let unsent = error.take_message().map(Box::new);
        Unanswered { error: error.into_error(), unsent }
    }
}

impl<B> fmt::Debug for Line<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Unanswered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_unsent = self.unsent.is_some();
        f.debug_struct("Unanswered").field("error", &self.error).field("is_unsent", &is_unsent).finish()
    }
}
