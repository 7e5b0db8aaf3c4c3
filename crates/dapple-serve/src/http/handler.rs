//! What answers the requests of one connection.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use dapple_http::{Head, Request};
use dapple_io::Connection;
use http::{Response, StatusCode};

use super::limits::Limits;
use super::reply::Reply;
use super::request_body::RequestBody;
use crate::BoxError;

/// What answers the requests of one connection, in either of two forms: HTTP/1.1 lends a request, HTTP/2 gives it away to a task of
/// its own. The [`Service`](super::Service)s of the `dapple` command and tower's services have an adapter each.
///
/// A clone is the same handler.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of a reply by HTTP/2.
    type StreamBody: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers one request of HTTP/1.1. Runs in the color of its connection.
    fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>) -> impl Future<Output = Reply> + Send;

    /// Answers one request of HTTP/2. Runs in the color of its stream.
    fn answer_stream(
        self,
        request: http::Request<hyper::body::Incoming>,
        limits: Arc<Limits>,
    ) -> impl Future<Output = Response<Self::StreamBody>> + Send + 'static;

    /// Whether an answer is given up when the client ends its direction of the connection.
    const ENDS_WITH_CLIENT: bool = false;

    /// Whether a connection of HTTP/1.1 goes to [`take_over`](Handler::take_over) from this request on.
    fn wants_connection(&self, _head: &Head<'_>) -> bool {
        false
    }

    /// Goes on with a connection. `first` was read from it and not answered; it begins with the request that was wanted.
    fn take_over<S: Connection>(self, _stream: S, _first: Bytes) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// A connection is about to be read on which no request is open.
    fn before_read<S: Connection>(&self, _stream: &S) {}

    /// Bytes were read that a request may begin with.
    fn after_read<S: Connection>(&self, _stream: &S) {}

    /// The reply to input that is no request, for a reason that a log may have. The connection ends after it.
    fn refuse(&self, status: StatusCode, reason: &str) -> Reply;

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
