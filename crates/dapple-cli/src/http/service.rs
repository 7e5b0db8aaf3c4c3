//! Who makes replies, and for whom.

use std::future::Future;
use std::net::SocketAddr;

use dapple_http::Request;

use super::reply::Reply;

/// What makes a reply of a request; `serve` is one, `proxy` another.
pub(crate) trait Service: Send + Sync + 'static {
    /// Answers one request. Runs in the color of its connection, or of its stream where a connection has many.
    fn answer(&self, request: &Request<'_>, client: &Client) -> impl Future<Output = Reply> + Send;
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub(crate) is_secure: bool,
    /// The color of the connection, as a number to show.
    pub(crate) color: u64,
}
