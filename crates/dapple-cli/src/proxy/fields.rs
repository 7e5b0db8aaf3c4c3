//! Separates header fields that are passed on from those of one connection (RFC 9110, section 7.6).

use std::net::IpAddr;

use dapple::task::TraceContext;
use dapple_http::Request;
use dapple_http::hops::strip;
use http::header::{CONNECTION, HOST, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

/// The outgoing fields of a request, with `authority` as `Host`. Leaves out the framing of the
/// body.
pub(crate) fn outgoing(request: &Request<'_>, authority: &HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(request.fields.len() + 2);
    headers.insert(HOST, authority.clone());
    for field in request.fields.iter() {
        let pair = HeaderName::from_bytes(field.name.as_bytes()).ok().zip(HeaderValue::from_bytes(field.value).ok());
        match pair {
            Some((name, value)) if name != HOST => drop(headers.append(name, value)),
            _ => {}
        }
    }
    strip_but_trailer(&mut headers);
    continue_trace(&mut headers);
    if request.takes_trailers() {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    headers
}

/// Puts this proxy's part of the trace in the place of the sender's, while a tool observes the proxy; otherwise the
/// sender's goes on unchanged.
pub(crate) fn continue_trace(headers: &mut HeaderMap) {
    if let Some(context) = TraceContext::current()
        && let Ok(value) = HeaderValue::from_str(&context.to_string())
    {
        headers.insert(TraceContext::HEADER, value);
    }
}

/// As [`strip`], but keeps the message's announcement of trailers, for clients that get them: over
/// HTTP/1.1 hyper sends only announced ones.
pub(crate) fn strip_but_trailer(headers: &mut HeaderMap) {
    let named: Vec<HeaderValue> = headers.get_all(TRAILER).iter().cloned().collect();
    strip(headers);
    headers.extend(named.into_iter().map(|value| (TRAILER, value)));
}

/// Removes a response's announcement of trailers if the client gets none. Over HTTP/2 it gets them
/// anyway.
pub(crate) fn hide_trailers(headers: &mut HeaderMap, request: &Request<'_>) {
    if request.version != Version::HTTP_2 && !request.takes_trailers() {
        headers.remove(TRAILER);
    }
}

/// The trailers that are passed on: none that would change how the message is framed, routed,
/// stored or understood if a reader took it for a field of the head (RFC 9110, section 6.5.1).
pub(crate) fn trailers(mut trailers: HeaderMap) -> Option<HeaderMap> {
    strip(&mut trailers);
    for name in NO_TRAILERS {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

/// Tells the server which client made the request (RFC 7239).
pub(crate) fn add_forwarded(headers: &mut HeaderMap, client: IpAddr) {
    let value = match client {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    if let Ok(value) = HeaderValue::from_str(&value) {
        headers.append("forwarded", value);
    }
}

/// Fields that may not be trailers.
const NO_TRAILERS: [&str; 23] = [
    "age",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "location",
    "max-forwards",
    "pragma",
    "range",
    "retry-after",
    "set-cookie",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];
