//! The connection that a request goes by.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;

use super::Turn;
use super::lease::Lease;
use super::pool::{Pool, Sender1, Stream};

/// A connection for one request. It asks for another form of the head by version, so look at [`is_h2`](Line::is_h2).
pub struct Line<B>(pub(super) Kind<B>);

/// By which version.
pub(super) enum Kind<B> {
    One(Sender1<B>),
    Many(Stream<B>),
}

/// Resolves to a response, or says how far the request came. Dropped, it ends the request.
pub type Respond<B> = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Unanswered<B>>> + Send>>;

/// Why there is no response.
pub struct Unanswered<B> {
    /// What hyper says.
    pub error: hyper::Error,
    /// The request, where nothing of it has left this machine.
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

    /// Hands the request to its connection. One that ends in this very moment may miss it in its queue, where it then is for as long as
    /// there is a sender; so none is kept of a connection that has ended.
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
    fn of(mut error: TrySendError<Request<B>>) -> Unanswered<B> {
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
