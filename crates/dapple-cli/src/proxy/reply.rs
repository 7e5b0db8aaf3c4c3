//! Replies from stored responses, from responses in transit, and about failures.

use std::ops::Range;

use bytes::Bytes;
use dapple_http::Request;
use dapple_http::conditional::{self, Verdict, if_range_holds};
use dapple_http::range::{Wanted, wanted};
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED,
    SET_COOKIE, VARY, VIA, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::cache::Stored;
use super::failure::Failure;
use crate::http::{Body, Reply};

/// The cache's part in a reply, in the words of `Cache-Status` (RFC 9211).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Sent from the cache.
    Hit,
    /// Sent from the cache after the origin confirmed it, perhaps for another request.
    Validated { collapsed: bool },
    /// Sent from the cache because the origin failed.
    StandsIn,
    /// Fetched: the reason, and whether for another request.
    Fetched { why: &'static str, stored: bool, collapsed: bool },
}

impl Note {
    fn value(&self, ttl_s: Option<i64>) -> HeaderValue {
        let mut text = "dapple; ".to_owned();
        text.push_str(match self {
            Note::Hit => "hit",
            Note::Validated { .. } => "fwd=stale; fwd-status=304",
            Note::StandsIn => "hit; fwd=stale; detail=stale-if-error",
            Note::Fetched { .. } => "fwd=",
        });
        if let Note::Fetched { why, stored, .. } = self {
            text.push_str(why);
            text.push_str(if *stored { "; stored" } else { "" });
        }
        if let Note::Validated { collapsed: true } | Note::Fetched { collapsed: true, .. } = self {
            text.push_str("; collapsed");
        }
        if let Some(ttl_s) = ttl_s {
            text.push_str("; ttl=");
            text.push_str(&ttl_s.to_string());
        }
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("dapple"))
    }

    /// Adds this cache's part to those of other caches.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, ttl_s: Option<i64>) {
        headers.append(HeaderName::from_static("cache-status"), self.value(ttl_s));
    }
}

/// The stored response in the form that the request wants: all of it, a part, or `304`.
pub(crate) fn of_stored(stored: &Stored, request: &Request<'_>, now_ms: u64, note: &Note) -> Reply {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(AGE, HeaderValue::from(stored.policy.age_s(now_ms)));
    note.add_to(&mut headers, Some(stored.policy.fresh_for_s(now_ms)));
    if let Some(date) = &stored.date {
        headers.insert(DATE, date.clone());
    }
    let len = stored.body.len() as u64;
    let is_head = request.method == Method::HEAD;
    if stored.status == StatusCode::OK {
        if is_not_modified(request, stored) {
            copy(&stored.head.headers, &mut headers, &OF_NOT_MODIFIED);
            return Reply::new(StatusCode::NOT_MODIFIED, headers, Body::Empty);
        }
        if let Some(part) = part(request, stored, now_ms).filter(|_| !is_head) {
            return of_part(stored, headers, part, len);
        }
    }
    let body = if is_head || stored.body.is_empty() { Body::Empty } else { Body::Whole(stored.body.clone()) };
    let mut reply = Reply::new(stored.status, headers, body);
    reply.shared = Some(stored.head.clone());
    reply.content_len = is_head.then_some(len);
    reply
}

/// A `304`, if the client already has the response in transit.
pub(crate) fn not_modified(
    request: &Request<'_>,
    status: StatusCode,
    fields: &HeaderMap,
    note: &Note,
) -> Option<Reply> {
    let modified = fields.get(LAST_MODIFIED).and_then(|date| conditional::date(date.as_bytes()));
    let current = conditional::Validators { etag: fields.get(ETAG).map(|etag| etag.as_bytes()), modified_s: modified };
    let verdict = conditional::evaluate(&request.method, request.fields, &current);
    (status == StatusCode::OK && verdict == Verdict::NotModified).then(|| {
        let mut headers = HeaderMap::new();
        copy(fields, &mut headers, &OF_NOT_MODIFIED);
        copy(fields, &mut headers, &[DATE]);
        note.add_to(&mut headers, None);
        Reply::new(StatusCode::NOT_MODIFIED, headers, Body::Empty)
    })
}

/// The reply for a response in transit.
pub(crate) fn of_stream(
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
    content_len: Option<u64>,
    is_head: bool,
) -> Reply {
    let has_no_body = is_head || status == StatusCode::NOT_MODIFIED || status == StatusCode::NO_CONTENT;
    let mut reply = Reply::new(status, headers, if has_no_body { Body::Empty } else { body });
    reply.content_len = content_len.filter(|_| has_no_body);
    reply
}

/// A page that names the failure and the remedy.
pub(crate) fn of_failure(failure: &Failure, is_head: bool) -> Reply {
    let mut reply = page(failure.status(), &failure.text(), is_head);
    if let Some(kind) = failure.error_type() {
        let value = HeaderValue::from_str(&format!("dapple; error={kind}"));
        reply.headers.extend(value.ok().map(|value| (HeaderName::from_static("proxy-status"), value)));
    }
    if *failure == Failure::Busy {
        reply.headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply.close = matches!(failure, Failure::Client(_));
    reply
}

/// A page of the proxy.
pub(crate) fn page(status: StatusCode, text: &str, is_head: bool) -> Reply {
    let reason = status.canonical_reason().unwrap_or_default();
    let text = format!("{} {reason}\n\n{text}\n\n(dapple proxy)\n", status.as_str());
    own(status, "text/plain; charset=utf-8", text, is_head)
}

/// A reply in JSON.
pub(crate) fn json(text: String, is_head: bool) -> Reply {
    own(StatusCode::OK, "application/json", text, is_head)
}

fn own(status: StatusCode, content_type: &'static str, text: String, is_head: bool) -> Reply {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let text = Bytes::from(text);
    let len = text.len() as u64;
    let mut reply = Reply::new(status, headers, if is_head { Body::Empty } else { Body::Whole(text) });
    reply.content_len = is_head.then_some(len);
    reply
}

fn is_not_modified(request: &Request<'_>, stored: &Stored) -> bool {
    conditional::evaluate(&request.method, request.fields, &stored.validators()) == Verdict::NotModified
}

/// The part that a request wants, if it wants one.
fn part(request: &Request<'_>, stored: &Stored, now_ms: u64) -> Option<Option<Range<u64>>> {
    let mut ranges = request.fields.all("range");
    let range = ranges.next().filter(|_| ranges.next().is_none())?;
    if !if_range_holds(request.fields, &stored.validators(), now_ms / 1_000) {
        return None;
    }
    match wanted(range, stored.body.len() as u64) {
        Wanted::One(range) => Some(Some(range)),
        Wanted::Outside => Some(None),
        // A request for several parts may get the whole (RFC 9110, section 14.2).
        Wanted::Whole | Wanted::Several(_) => None,
    }
}

fn of_part(stored: &Stored, mut headers: HeaderMap, part: Option<Range<u64>>, len: u64) -> Reply {
    let Some(range) = part else {
        let value = HeaderValue::from_str(&format!("bytes */{len}"));
        headers.extend(value.ok().map(|value| (CONTENT_RANGE, value)));
        return Reply::new(StatusCode::RANGE_NOT_SATISFIABLE, headers, Body::Empty);
    };
    let value = HeaderValue::from_str(&format!("bytes {}-{}/{len}", range.start, range.end - 1));
    headers.extend(value.ok().map(|value| (CONTENT_RANGE, value)));
    let body = Body::Whole(stored.body.slice(range.start as usize..range.end as usize));
    let mut reply = Reply::new(StatusCode::PARTIAL_CONTENT, headers, body);
    reply.shared = Some(stored.head.clone());
    reply
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}

/// The fields of a `304` (RFC 9110, section 15.4.5).
const OF_NOT_MODIFIED: [HeaderName; 8] =
    [CACHE_CONTROL, CONTENT_LOCATION, ETAG, EXPIRES, LAST_MODIFIED, SET_COOKIE, VARY, VIA];
