//! Passes an HTTP/2 request to the service and returns the reply.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_io::time::timeout;
use dapple_sync::task::traced;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use crate::http::hyper::{self as messages, Received};
use crate::http::observer::ObservedBody;
use crate::http::service::sender_of;
use crate::http::{Client, Incoming as _, Limits, RequestBody, Service};

/// Answers one request, in the task of its stream.
pub(crate) async fn answer<V: Service>(
    request: http::Request<Incoming>,
    service: Arc<V>,
    client: Client,
    limits: Arc<Limits>,
) -> Response<ObservedBody> {
    let (parts, body) = request.into_parts();
    let mut body = Detachable(Some(Received::new(body)));
    let fields = messages::fields(&parts.headers);
    let request = messages::request(&parts, &fields);
    let reply = match messages::malformed(&parts, &request) {
        Some(reason) => service.refuse(StatusCode::BAD_REQUEST, reason, &client),
        None => traced(sender_of(&request), service.answer(&request, &mut RequestBody::new(&mut body), &client)).await,
    };
    if let Some(mut body) = body.0.filter(|body| !body.is_end())
        && request.fields.first("expect").is_none()
    {
        // Only the end of the body shows whether the request was well-formed. If a client waits for
        // `100 Continue`, the server does not wait for that client.
        let _ = timeout(limits.pause_timeout, drain(&mut body, limits.drain_len_max)).await;
    }
    messages::response(reply)
}

/// The body of a request, which may be read on while the reply is sent: a stream goes both ways.
struct Detachable(Option<Received>);

impl crate::http::Incoming for Detachable {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |body| body.poll_next(cx))
    }

    fn len(&self) -> Option<u64> {
        self.0.as_ref().map_or(Some(0), crate::http::Incoming::len)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.0.as_mut().and_then(crate::http::Incoming::trailers)
    }

    fn detach(&mut self) -> Option<Box<dyn crate::http::Incoming + Send + Sync>> {
        self.0.take().map(|body| Box::new(body) as Box<dyn crate::http::Incoming + Send + Sync>)
    }
}

/// Discards the rest of a body, up to `left` bytes.
async fn drain(body: &mut Received, mut left: u64) {
    while let Some(Ok(piece)) = poll_fn(|cx| body.poll_next(cx)).await {
        match left.checked_sub(piece.len() as u64) {
            Some(less) => left = less,
            None => return,
        }
    }
}
