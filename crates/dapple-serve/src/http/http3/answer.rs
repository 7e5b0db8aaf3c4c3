//! Passes an HTTP/3 request to the service and returns the reply, in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::timeout;
use dapple_sched::environment;
use dapple_sync::task::traced;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use h3_quinn::SendStream;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use tracing::debug;

use super::metered::{Connection, Credit};
use super::request_body::{Drained, Received};
use crate::http::clock::now_ms;
use crate::http::observer::ObservedBody;
use crate::http::pace::send_pace;
use crate::http::service::sender_of;
use crate::http::{Awaited, Client, Limits, RequestBody, Service, hyper as messages};

/// Answers one request.
pub(super) async fn answer<V: Service>(
    resolver: RequestResolver<Connection, Bytes>,
    credit: Credit,
    service: Arc<V>,
    client: Client,
    limits: Arc<Limits>,
) {
    // If the time runs out, dropping the stream resets it.
    let (request, stream) = match timeout(limits.head_timeout, resolver.resolve_request()).await {
        Ok(Ok(request)) => request,
        Ok(Err(error)) => return debug!(%error, "an HTTP/3 stream had no request"),
        Err(_) => return service.timed_out(Awaited::Request),
    };
    let (mut sending, receiving) = stream.split();
    let (parts, ()) = request.into_parts();
    let mut body = Received::new(receiving, credit, len(&parts.headers));
    let fields = messages::fields(&parts.headers);
    let request = messages::request(&parts, &fields);
    let reply = match messages::malformed(&parts, &request) {
        Some(reason) => service.refuse(StatusCode::BAD_REQUEST, reason, &client),
        None => {
            let reply =
                traced(sender_of(&request), service.answer(&request, &mut RequestBody::new(&mut body), &client)).await;
            // Only the end of the body shows whether the request was well-formed. If a client waits
            // for `100 Continue`, the server does not wait for that client.
            let awaits = request.fields.first("expect").is_some();
            match if awaits { Drained::More } else { body.drain(&limits).await } {
                Drained::Whole | Drained::More => reply,
                Drained::Malformed(reason) => service.refuse(StatusCode::BAD_REQUEST, &reason, &client),
                Drained::Slow => {
                    service.timed_out(Awaited::Request);
                    service.refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long", &client)
                }
                Drained::Gone => return debug!("an HTTP/3 client cancelled its request"),
            }
        }
    };
    let (mut head, reply_body) = messages::response(reply).into_parts();
    let has_body = parts.method != Method::HEAD && may_have_body(head.status);
    frame(&mut head.headers, head.status, &reply_body);
    let response = http::Response::from_parts(head, ());
    let sent = send(&mut sending, response, reply_body, has_body, &limits).await;
    match sent {
        Ok(()) => {}
        Err(Cut::Stream(error)) => debug!(%error, "an HTTP/3 client cut its reply"),
        Err(Cut::Body) => sending.stop_stream(Code::H3_INTERNAL_ERROR),
        Err(Cut::Slow) => {
            service.timed_out(Awaited::Response);
            sending.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
    }
    body.stop();
}

/// The reason why a reply is incomplete.
enum Cut {
    /// The client, or the connection to it, has ended.
    Stream(StreamError),
    /// The body itself failed.
    Body,
    /// The client takes it too slowly.
    Slow,
}

async fn send(
    stream: &mut RequestStream<SendStream<Bytes>, Bytes>,
    head: http::Response<()>,
    mut body: ObservedBody,
    has_body: bool,
    limits: &Limits,
) -> Result<(), Cut> {
    let mut pace = send_pace(limits);
    let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(now_ms()) + CLOCK_BEHIND_MS);
    within(left(pace.deadline_ms()), stream.send_response(head)).await?;
    while has_body && let Some(frame) = body.frame().await {
        let mut piece = frame.map_err(|_| Cut::Body)?.into_data().unwrap_or_default();
        pace.go_on(now_ms());
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(PIECE_LEN_MAX));
            let len = part.len() as u64;
            within(left(pace.deadline_ms()), stream.send_data(part)).await?;
            pace.moved(len, now_ms());
        }
        // The service has no bytes to send yet, so the client is not slow.
        pace.rest(now_ms());
    }
    pace.go_on(now_ms());
    within(left(pace.deadline_ms()), stream.finish()).await
}

async fn within(limit: Duration, sending: impl Future<Output = Result<(), StreamError>>) -> Result<(), Cut> {
    timeout(limit, sending).await.map_err(|_| Cut::Slow)?.map_err(Cut::Stream)
}

/// Adds what every HTTP version sends: the date, and the length of the body.
fn frame(headers: &mut HeaderMap, status: StatusCode, body: &ObservedBody) {
    if !headers.contains_key(CONTENT_LENGTH)
        && may_have_body(status)
        && let Some(len) = body.size_hint().exact()
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    if !headers.contains_key(DATE)
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(environment::system_now()))
    {
        headers.insert(DATE, date);
    }
}

fn may_have_body(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The length of the body, as the client states it.
fn len(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The most bytes given to a stream at once: so other streams soon get their turn, and a slow
/// client can be told from a stalled one.
const PIECE_LEN_MAX: usize = 16 << 10;

/// How far the coarse clock may be behind the timers' clock.
const CLOCK_BEHIND_MS: u64 = 20;
