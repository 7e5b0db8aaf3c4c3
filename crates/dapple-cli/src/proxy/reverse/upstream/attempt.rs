//! One attempt at one upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dapple::stage::balance::Outcome;
use dapple::time::Instant;
use dapple_client::upstream::{Lease, Unanswered, with_causes};
use dapple_http::hops;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;

use super::Upstream;
use crate::http::{Body, RequestBody};
use crate::proxy::hints::Hints;
use crate::proxy::reverse::failure::Failure;
use crate::proxy::reverse::list::Pick;
use crate::proxy::reverse::target::Scheme;
use crate::proxy::upstream::body::{Held, passing};
use crate::proxy::upstream::sending::{Delivered, Halt, Pieces, deliver, passed_on, prepare};
use crate::proxy::upstream::upload::Upload;

/// A request in the form for any upstream.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    /// Without `Host`, and without the fields of a connection.
    pub(crate) headers: HeaderMap,
    /// The client's name for the server; `None` if upstreams get their own names.
    pub(crate) authority: Option<Authority>,
    /// Whether the client takes fields after the body.
    pub(crate) takes_trailers: bool,
    /// The protocol to change to, if the client asks for one.
    pub(crate) upgrade: Option<HeaderValue>,
    /// The destination of interim responses, if any.
    pub(crate) hints: Option<Arc<Hints>>,
}

/// A response of which the head has arrived.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without the framing of the body.
    pub(crate) headers: HeaderMap,
    /// The value of `content-length`, also for a body that is not sent.
    pub(crate) content_len: Option<u64>,
    pub(crate) body: Body,
    /// Whether the upstream answered before it had the whole request.
    pub(crate) is_early: bool,
    /// The connection after a change of protocol, and the value to hold as long as it is open.
    pub(crate) upgraded: Option<(Upgraded, Box<dyn Send>)>,
}

/// The reason why there is no answer.
pub(crate) struct Missed {
    pub(crate) failure: Failure,
    /// Whether no part of the request left this machine.
    pub(crate) is_unsent: bool,
    /// Whether the connection had been used before: the upstream may have closed it at this moment.
    pub(crate) is_kept: bool,
    /// When the connection was ready.
    pub(crate) begun: Instant,
}

/// Sends a request with its client's body, and returns the answer once its head has arrived. With
/// `fresh`, uses an unused HTTP/1.1 connection, or a younger HTTP/2 one. The pick is passed on with
/// an answer, and otherwise stays.
///
/// # Errors
///
/// The reason why there is no answer, and how far the request got.
pub(crate) async fn attempt(
    pick: &mut Option<Pick>,
    outgoing: &Outgoing,
    body: &mut RequestBody<'_>,
    fresh: Option<Instant>,
) -> Result<Answer, Missed> {
    let unsent = |failure| Missed { failure, is_unsent: true, is_kept: false, begun: Instant::now() };
    let Some(upstream) = pick.as_ref().map(|pick| pick.value().clone()) else {
        return Err(unsent(Failure::Busy));
    };
    let upstream = &upstream;
    upstream.counts.requests.fetch_add(1, Ordering::Relaxed);
    let turn = upstream.host.turn().await.map_err(|error| unsent(error.into()))?;
    let only_http1 = outgoing.upgrade.is_some() && upstream.target.scheme != Scheme::H2c;
    let (line, is_kept) = turn.line(None, fresh, only_http1).await.map_err(|error| unsent(error.into()))?;
    let counts = &upstream.counts;
    (if is_kept { &counts.reused } else { &counts.connects }).fetch_add(1, Ordering::Relaxed);
    let begun = Instant::now();
    pick.as_mut().into_iter().for_each(Pick::start);
    let missed = |failure, is_unsent| Missed { failure, is_unsent, is_kept, begun };
    let (uri, headers) = outgoing.head(upstream, line.is_h2(), body.len());
    let prepared = prepare(&outgoing.method, uri, &headers, outgoing.hints.as_ref(), body.len());
    let common = &upstream.common;
    let delivered = deliver(line, turn, prepared, body, common.waits.response, &common.config.spawn).await;
    let Delivered { response, lease, upload } = delivered.map_err(|halt| match halt {
        Halt::Client(error) => missed(Failure::Client(error.to_string()), false),
        Halt::Server(unanswered) => missed(failure(&unanswered), unanswered.unsent.is_some()),
        Halt::Idle => missed(Failure::Idle, false),
        Halt::Stuck => missed(Failure::Stuck, false),
        Halt::Late => missed(Failure::TimedOut, false),
    })?;
    let after = begun.elapsed();
    let answer =
        accept(response, lease, upload, outgoing, upstream, pick).await.map_err(|failure| missed(failure, false))?;
    upstream.answered(after);
    Ok(answer)
}

fn failure(unanswered: &Unanswered<Upload>) -> Failure {
    match unanswered.error.is_parse() {
        true => Failure::Framing("its head is malformed"),
        false => Failure::Broken(with_causes(&unanswered.error)),
    }
}

impl Outgoing {
    /// Target and fields in the form of the HTTP version in use.
    fn head(&self, upstream: &Upstream, is_h2: bool, len: Option<u64>) -> (Uri, HeaderMap) {
        let mut headers = self.headers.clone();
        let own = || upstream.authority.clone();
        let authority = self.authority.clone().unwrap_or_else(own);
        match is_h2 {
            false => {
                let host = HeaderValue::from_str(authority.as_str()).unwrap_or_else(|_| HeaderValue::from_static(""));
                headers.insert(HOST, host);
                join_cookies(&mut headers);
                if let Some(protocol) = &self.upgrade {
                    headers.insert(UPGRADE, protocol.clone());
                    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                } else if self.takes_trailers {
                    headers.insert(TE, HeaderValue::from_static("trailers"));
                    headers.insert(CONNECTION, HeaderValue::from_static("te"));
                }
                if len.is_none() {
                    // Otherwise hyper sends no body with a method that mostly has none.
                    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
                (Uri::from(self.target.clone()), headers)
            }
            true => {
                headers.remove(EXPECT);
                if self.takes_trailers {
                    headers.insert(TE, HeaderValue::from_static("trailers"));
                }
                let scheme = if upstream.target.scheme == Scheme::Https { "https" } else { "http" };
                let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(self.target.clone());
                (uri.build().unwrap_or_else(|_| Uri::from(self.target.clone())), headers)
            }
        }
    }
}

/// Over HTTP/2 a cookie may arrive in pieces (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// Accepts a response with unambiguous framing.
async fn accept(
    response: Response<Incoming>,
    lease: Lease<Upload>,
    upload: Option<Pieces>,
    outgoing: &Outgoing,
    upstream: &Arc<Upstream>,
    pick: &mut Option<Pick>,
) -> Result<Answer, Failure> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && outgoing.upgrade.is_some() {
        return upgraded(response, lease, outgoing, pick).await;
    }
    let (head, incoming) = response.into_parts();
    let (head, content_len) = passed_on(head).map_err(Failure::Framing)?;
    let is_early = upload.is_some();
    let held = InFlight { upstream: upstream.clone(), pick: answered(pick, head.status) };
    let body = passing(incoming, lease, upload, upstream.common.waits, held);
    let Parts { version, status, headers, .. } = head;
    Ok(Answer { version, status, headers, content_len, body, is_early, upgraded: None })
}

/// Counts a request as in flight until its response is complete.
struct InFlight {
    upstream: Arc<Upstream>,
    pick: Option<Pick>,
}

impl Held for InFlight {
    fn received(&self, len: u64) {
        self.upstream.counts.received.fetch_add(len, Ordering::Relaxed);
    }

    fn complete(&mut self) {
        self.pick = None;
    }
}

/// Reports the outcome, and returns the pick, which counts as in flight until the response has
/// ended. A refusal for overload is fast, and must not attract more requests.
fn answered(pick: &mut Option<Pick>, status: StatusCode) -> Option<Pick> {
    let mut pick = pick.take()?;
    pick.report(if status == StatusCode::SERVICE_UNAVAILABLE { Outcome::Refused } else { Outcome::Success });
    Some(pick)
}

/// Handles an upstream that changes the protocol.
async fn upgraded(
    mut response: Response<Incoming>,
    lease: Lease<Upload>,
    outgoing: &Outgoing,
    pick: &mut Option<Pick>,
) -> Result<Answer, Failure> {
    let agreed = response.headers().get(UPGRADE).cloned();
    let is_asked = |agreed: &HeaderValue| {
        let asked = outgoing.upgrade.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        asked.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(agreed.as_bytes()))
    };
    let agreed = agreed.filter(is_asked).ok_or(Failure::Framing("it changes to a protocol that was not requested"))?;
    let upgrade = hyper::upgrade::on(&mut response).await;
    let upgrade = upgrade.map_err(|error| Failure::Broken(with_causes(&error)))?;
    let (parts, _) = response.into_parts();
    let mut headers = parts.headers;
    hops::strip(&mut headers);
    headers.remove(CONTENT_LENGTH);
    headers.insert(UPGRADE, agreed);
    // It still counts as a connection.
    let pick = answered(pick, parts.status);
    let held = Box::new((lease.into_open(), pick));
    Ok(Answer {
        version: parts.version,
        status: parts.status,
        headers,
        content_len: None,
        body: Body::Empty,
        is_early: false,
        upgraded: Some((upgrade, held)),
    })
}
