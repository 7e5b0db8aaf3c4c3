//! A connection of HTTP/2 outside of the pool.

use std::fmt;

use http::Request;
use hyper::body::Body;

use super::line::{Respond, Unanswered};
use super::pool::Sender2;

/// A connection of HTTP/2 that its owner keeps outside of the pool. Clones share it; it closes when the last clone and the last request on it
/// are gone. The owner decides which connection carries a request, and from when on it carries no further one.
///
/// The server gets a PING every 10 seconds, also while no request is in flight, and the connection ends where no answer comes.
pub struct Session<B> {
    pub(super) sender: Sender2<B>,
}

impl<B> Session<B> {
    /// Whether the connection has ended, or carries no further request.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl<B> Session<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Hands a request to the connection. Requests beyond the number that the server allows wait in hyper, so the caller limits them.
    pub fn send(&mut self, request: Request<B>) -> Respond<B> {
        let responding = self.sender.try_send_request(request);
        Box::pin(async move { responding.await.map_err(Unanswered::of) })
    }
}

impl<B> Clone for Session<B> {
    fn clone(&self) -> Self {
        Session { sender: self.sender.clone() }
    }
}

impl<B> fmt::Debug for Session<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_closed", &self.is_closed()).finish()
    }
}
