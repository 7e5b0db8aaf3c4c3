//! A connection of HTTP/2 outside of the pool.

use std::fmt;

use http::Request;
use hyper::body::Body;

use super::line::{Respond, Unanswered};
use super::pool::Sender2;

/// An HTTP/2 connection that its owner keeps outside of the pool. Clones share it; it closes after
/// the last clone and its last request are gone. The owner chooses the connection of each request,
/// and decides when a connection carries no more.
///
/// The client sends a PING every 10 seconds, also without requests in flight, and the connection
/// ends if there is no answer.
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
    /// Passes a request to the connection. Requests beyond the server's limit wait in hyper, so the
    /// caller must limit them.
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
