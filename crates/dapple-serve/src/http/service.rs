//! The trait of services that answer requests, and the facts of a connection that they see.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use dapple_http::Request;
use dapple_sync::task::{TraceContext, traced};
use http::{HeaderValue, Response, StatusCode};

use super::handler::{Awaited, Handler};
use super::http2;
use super::limits::Limits;
use super::observer::ObservedBody;
use super::reply::Reply;
use super::request_body::RequestBody;

/// Makes a reply for a request; `serve` and `proxy` implement it.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. Runs in the color of its connection, or of its stream if a connection
    /// has several.
    fn answer(
        &self,
        request: &Request<'_>,
        body: &mut RequestBody<'_>,
        client: &Client,
    ) -> impl Future<Output = Reply> + Send;

    /// Returns the reply to input that is refused before it is a request, for a reason that a log
    /// may show. The connection ends after it.
    fn refuse(&self, status: StatusCode, reason: &str, client: &Client) -> Reply;

    /// Whether there are more clients than connections, so that idle ones end early.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Called when a connection ends because its client took too long.
    fn timed_out(&self, _awaited: Awaited) {}
}

/// The client's side of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub addr: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// The color of the connection, as a number to display.
    pub color: u64,
    /// The other protocols at this address, in the form of `alt-svc`.
    pub alternative: Option<HeaderValue>,
}

/// The sender's place in a trace.
pub(crate) fn sender_of(request: &Request<'_>) -> Option<TraceContext> {
    request.fields.first(TraceContext::HEADER).and_then(TraceContext::parse)
}

/// A service as the handler of one client's requests.
pub struct Borrowed<V> {
    service: Arc<V>,
    client: Client,
}

impl<V> Borrowed<V> {
    /// Creates a handler for this client.
    pub fn new(service: Arc<V>, client: Client) -> Borrowed<V> {
        Borrowed { service, client }
    }
}

impl<V> Clone for Borrowed<V> {
    fn clone(&self) -> Borrowed<V> {
        Borrowed { service: self.service.clone(), client: self.client.clone() }
    }
}

impl<V: Service> Handler for Borrowed<V> {
    type StreamBody = ObservedBody;

    fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>) -> impl Future<Output = Reply> + Send {
        traced(sender_of(request), self.service.answer(request, body, &self.client))
    }

    fn answer_stream(
        self,
        request: http::Request<hyper::body::Incoming>,
        limits: Arc<Limits>,
    ) -> impl Future<Output = Response<ObservedBody>> + Send + 'static {
        http2::answer(request, self.service, self.client, limits)
    }

    fn refuse(&self, status: StatusCode, reason: &str) -> Reply {
        self.service.refuse(status, reason, &self.client)
    }

    fn is_crowded(&self) -> bool {
        self.service.is_crowded()
    }

    fn timed_out(&self, awaited: Awaited) {
        self.service.timed_out(awaited);
    }
}
