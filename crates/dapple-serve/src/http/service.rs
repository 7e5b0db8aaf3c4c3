//! The service that answers requests, and the facts of a connection that it sees.

use std::future::Future;
use std::net::SocketAddr;

use dapple_http::Request;
use http::{HeaderValue, StatusCode};

use super::reply::Reply;
use super::request_body::RequestBody;

/// What makes a reply of a request; `serve` is one, `proxy` another.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Runs in the color of its connection, or of its stream where a connection has many.
    fn answer(
        &self,
        request: &Request<'_>,
        body: &mut RequestBody<'_>,
        client: &Client,
    ) -> impl Future<Output = Reply> + Send;

    /// The reply to what is refused before it is a request, for a reason that a log may have. The connection ends behind it.
    fn refuse(&self, status: StatusCode, reason: &str, client: &Client) -> Reply;

    /// Whether there are more clients than connections: idle ones end early then.
    fn is_crowded(&self) -> bool {
        false
    }

    /// A connection ends because its client let others wait too long.
    fn timed_out(&self, _awaited: Awaited) {}
}

/// What a client takes too long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// To ask for anything, or for anything more.
    NextRequest,
    /// To send all of a request.
    Request,
    /// To take its response.
    Response,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// The color of the connection, as a number to show.
    pub color: u64,
    /// What else is spoken at this address, as `alt-svc` says it.
    pub alternative: Option<HeaderValue>,
}
