//! One request at one upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dapple::stage::balance::Outcome;
use dapple::time::Instant;
use dapple_client::upstream::{Lease, Unanswered, with_causes};
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;

use super::Upstream;
use crate::http::{Body, RequestBody};
use crate::proxy::fields;
use crate::proxy::hints::Hints;
use crate::proxy::reverse::failure::Failure;
use crate::proxy::reverse::list::Pick;
use crate::proxy::reverse::target::Scheme;
use crate::proxy::upstream::body::{Held, passing};
use crate::proxy::upstream::sending::{Delivered, Halt, Pieces, deliver, passed_on, prepare};
use crate::proxy::upstream::upload::Upload;

/// A request as it goes to whichever upstream.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    /// Without `Host`, and without what belongs to a connection.
    pub(crate) headers: HeaderMap,
    /// What the client calls the server; `None` where upstreams are asked by their own names.
    pub(crate) authority: Option<Authority>,
    /// Whether the client takes fields behind the body.
    pub(crate) takes_trailers: bool,
    /// The protocol to change to, where the client asks for one.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Where interim responses go, if anywhere.
    pub(crate) hints: Option<Arc<Hints>>,
}

/// A response whose head is there.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without what frames the body.
    pub(crate) headers: HeaderMap,
    /// What `content-length` said: also of a body that is not sent.
    pub(crate) content_len: Option<u64>,
    pub(crate) body: Body,
    /// The upstream answered before it had all of the request.
    pub(crate) is_early: bool,
    /// The protocol has changed: the connection, and what is held for as long as it is open.
    pub(crate) upgraded: Option<(Upgraded, Box<dyn Send>)>,
}

/// Why there is none.
pub(crate) struct Missed {
    pub(crate) failure: Failure,
    /// Nothing of the request left this machine.
    pub(crate) is_unsent: bool,
    /// The connection had been used before: the upstream may have closed it in this very moment.
    pub(crate) is_kept: bool,
    /// There was a connection at this time.
    pub(crate) begun: Instant,
}

/// Sends a request with what its client sends as the body, and gives the answer once its head is there. With `fresh`, on a connection
/// of HTTP/1.1 that was not used before, or on one of HTTP/2 that is younger. The pick goes along with an answer, and stays where there is none.
///
/// # Errors
///
/// Why there is no answer, and what is known of how far the request came.
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
    /// Target and fields in the form of the version that is spoken.
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

/// By HTTP/2 a cookie may come in pieces (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(COOKIE, whole);
    }
}

/// An answer whose framing is beyond doubt.
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

/// A request counts as in flight until its response is complete.
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

/// The pick, which counts as in flight until the response has ended, and was told how it went. Whoever refuses for overload is quick, and
/// has enough to do.
fn answered(pick: &mut Option<Pick>, status: StatusCode) -> Option<Pick> {
    let mut pick = pick.take()?;
    pick.report(if status == StatusCode::SERVICE_UNAVAILABLE { Outcome::Refused } else { Outcome::Success });
    Some(pick)
}

/// The upstream speaks another protocol from here on.
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
    let agreed = agreed.filter(is_asked).ok_or(Failure::Framing("it changes to a protocol that nobody asked for"))?;
    let upgrade = hyper::upgrade::on(&mut response).await;
    let upgrade = upgrade.map_err(|error| Failure::Broken(with_causes(&error)))?;
    let (parts, _) = response.into_parts();
    let mut headers = parts.headers;
    fields::strip(&mut headers);
    headers.remove(CONTENT_LENGTH);
    headers.insert(UPGRADE, agreed);
    // Among the connections it is still one.
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
