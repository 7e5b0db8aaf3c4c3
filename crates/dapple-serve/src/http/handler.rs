//! The trait of types that answer the requests of one connection.

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

/// Answers the requests of one connection, in two forms: HTTP/1.1 lends a request, HTTP/2 gives it
/// away to a task of its own. The `dapple` command's [`Service`](super::Service)s and tower
/// services each have an adapter.
///
/// A clone is the same handler.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The body of an HTTP/2 reply.
    type StreamBody: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers one HTTP/1.1 request. Runs in the color of its connection.
    fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>) -> impl Future<Output = Reply> + Send;

    /// Answers one HTTP/2 request. Runs in the color of its stream.
    fn answer_stream(
        self,
        request: http::Request<hyper::body::Incoming>,
        limits: Arc<Limits>,
    ) -> impl Future<Output = Response<Self::StreamBody>> + Send + 'static;

    /// Whether an answer is cancelled when the client ends its direction of the connection.
    const ENDS_WITH_CLIENT: bool = false;

    /// Whether an HTTP/1.1 connection goes to [`take_over`](Handler::take_over) from this request
    /// on.
    fn wants_connection(&self, _head: &Head<'_>) -> bool {
        false
    }

    /// Serves the rest of a connection. `first` was read from it and not answered; it begins with
    /// the request that asked for this.
    fn take_over<S: Connection>(self, _stream: S, _first: Bytes) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called before reading from a connection on which no request is open.
    fn before_read<S: Connection>(&self, _stream: &S) {}

    /// Called after reading bytes that may begin a request.
    fn after_read<S: Connection>(&self, _stream: &S) {}

    /// Returns the reply to input that is not a request, for a reason that a log may show. The
    /// connection ends after it.
    fn refuse(&self, status: StatusCode, reason: &str) -> Reply;

    /// Whether there are more clients than connections, so that idle ones end early.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Called when a connection ends because its client took too long.
    fn timed_out(&self, _awaited: Awaited) {}
}

/// The action for which a client took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// To send a first or a further request.
    NextRequest,
    /// To send all of a request.
    Request,
    /// To take its response.
    Response,
}
