//! One request, from the first connection to the response that is not a redirect.
//!
//! | what happened | what follows |
//! |---|---|
//! | a redirect | the next request, without the fields that must not go along |
//! | a pooled connection turned out to be closed, and nothing was sent | the same request on a fresh connection |
//! | the same, and something was sent | the same request on a fresh connection, if it is idempotent and its body is at hand |
//! | anything else | the response, or an error |
//!
//! The second and third row happen at most once for a request. Each uses the budget for retries.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use dapple_http::framing::framing;
use dapple_io::time::{Instant, timeout};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, HOST, RANGE, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use hyper::body::Body as _;
use url::Url;

use super::error::{Error, Phase};
use super::redirect::{self, Next};
use super::request_body::Body;
use super::response::Response;
use super::{Inner, ResponseBody};
use crate::upstream::{Download, Lease, Line, Turn, Unanswered};

/// The time at which the whole request must be over, and the limit behind it.
pub(super) type Deadline = Option<(Instant, Duration)>;

/// Sends a request, and the requests to which it is redirected.
pub(super) async fn send(
    inner: &Inner,
    request: Request<Body>,
    mut url: Url,
    deadline: Deadline,
) -> Result<Response, Error> {
    let (mut parts, mut body) = request.into_parts();
    let decodes = prepare(inner, &mut parts.headers);
    for redirects in 0.. {
        let spare = body.again();
        let one = One { inner, method: &parts.method, url: &url, headers: &parts.headers };
        let (head, incoming, lease) = one.send(body).await?;
        let mut download = Download::new(incoming, lease, inner.options.read_timeout);
        let next = match inner.options.redirects_max {
            0 => None,
            _ => redirect::next(head.status, &head.headers, &url, &parts.method)?,
        };
        let Some(next) = next.filter(|next| !next.keeps_body || spare.is_some()) else {
            let body = ResponseBody::new(download, deadline, inner.options.read_timeout);
            return Ok(Response::new(head, body, url, decodes, inner.options.body_bytes_max));
        };
        if redirects == inner.options.redirects_max {
            return Err(Error::TooManyRedirects { max: redirects, url: next.url.into() });
        }
        drain(&mut download).await;
        redirect::strip(&mut parts.headers, &url, &next);
        let Next { url: to, method, keeps_body } = next;
        body = if keeps_body { spare.unwrap_or_default() } else { Body::empty() };
        (url, parts.method) = (to, method);
    }
    unreachable!("the limit of redirects ends it")
}

/// Adds the fields that a request needs. Returns whether the client decompresses the response.
fn prepare(inner: &Inner, headers: &mut HeaderMap) -> bool {
    // Host and length come from the connection and the body, whatever the program set.
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    headers.entry(USER_AGENT).or_insert_with(|| inner.options.user_agent.clone());
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let decodes = inner.options.decompresses && !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE);
    if decodes {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, br, zstd"));
    }
    decodes
}

/// Reads a redirect's body up to [`DRAINED_MAX`]: if that is all of it, the connection is kept.
async fn drain(download: &mut Download<Body>) {
    let mut room = DRAINED_MAX;
    poll_fn(|cx| {
        while room > 0
            && let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *download).poll_frame(cx)
        {
            room = room.saturating_sub(frame.data_ref().map_or(1, bytes::Bytes::len).max(1));
        }
        Poll::Ready(())
    })
    .await;
}

/// How many bytes of a redirect's body are read and discarded, so that an endless body costs no
/// more.
const DRAINED_MAX: usize = 64 << 10;

/// A request to one server.
struct One<'a> {
    inner: &'a Inner,
    method: &'a Method,
    url: &'a Url,
    headers: &'a HeaderMap,
}

type Answered = (http::response::Parts, hyper::body::Incoming, Lease<Body>);

/// The failure of one attempt.
struct Missed {
    error: Error,
    /// The body, if the same request may be sent again.
    again: Option<Body>,
    begun: Instant,
}

impl One<'_> {
    async fn send(&self, body: Body) -> Result<Answered, Error> {
        self.inner.budget.deposit();
        let missed = match self.attempt(body, None).await {
            Ok(answered) => return Ok(answered),
            Err(missed) => missed,
        };
        match missed.again {
            Some(body) if self.inner.budget.withdraw() => {
                self.attempt(body, Some(missed.begun)).await.map_err(|missed| missed.error)
            }
            _ => Err(missed.error),
        }
    }

    async fn attempt(&self, body: Body, fresh: Option<Instant>) -> Result<Answered, Missed> {
        let begun = Instant::now();
        let over = |error| Missed { error, again: None, begun };
        let options = &self.inner.options;
        let host = self.inner.hosts.get(&redirect::origin(self.url, options.http2_prior_knowledge));
        let turn = host.turn().await.map_err(|error| over(error.into()))?;
        let (line, is_kept) = turn.line(None, fresh, false).await.map_err(|error| over(error.into()))?;
        let spare = body.again().filter(|_| self.method.is_idempotent());
        let fate = body.fate();
        let request = self.request(&line, &turn, body).map_err(over)?;
        let begun = Instant::now();
        let (mut respond, mut lease) = line.send(request, turn);
        let limit = options.head_timeout;
        let response = match timeout(limit, respond.as_mut()).await {
            Err(_) => return Err(over(Error::TimedOut { phase: Phase::Head, limit })),
            Ok(Ok(response)) => response,
            Ok(Err(Unanswered { error, unsent })) => {
                let is_stale = is_kept && !error.is_parse() && !error.is_user();
                let again = unsent.map(|request| request.into_body()).or(spare).filter(|_| is_stale);
                let error = fate.error().map_or_else(|| Error::of(error), Error::RequestBody);
                return Err(Missed { error, again, begun });
            }
        };
        if !fate.is_taken() {
            lease.do_not_keep();
        }
        let (head, incoming) = response.into_parts();
        if let Err(why) = framing(head.version, head.status, &head.headers) {
            return Err(over(Error::Malformed(why.to_owned())));
        }
        Ok((head, incoming, lease))
    }

    /// Target and fields in the form of the version in use.
    fn request(&self, line: &Line<Body>, turn: &Turn<Body>, body: Body) -> Result<Request<Body>, Error> {
        let len = body.size_hint().exact();
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = redirect::uri(self.url, line.is_h2())?;
        let headers = request.headers_mut();
        headers.clone_from(self.headers);
        if line.is_h2() {
            headers.remove(HOST);
            return Ok(request);
        }
        let authority = turn.host().origin().authority().ok();
        let value = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        headers.insert(HOST, value.unwrap_or_else(|| HeaderValue::from_static("")));
        if len == Some(0) && matches!(*self.method, Method::POST | Method::PUT | Method::PATCH) {
            // Hyper sends no length for an empty body; some servers want one (RFC 9110, section
            // 8.6).
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        if len.is_none() {
            // Otherwise hyper sends no body with methods such as GET.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Ok(request)
    }
}
