//! Responses: their headers, and the small pages for what went wrong.

use std::ops::Range;

use bytes::Bytes;
use dapple_http::Fields;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::meta::Meta;
use super::range::{self, Part};
use crate::http::{Body, Reply, SharedHead};

/// A response to a request for a file: all of it, the part that was asked for, or the short one that says that the
/// client's copy is still good.
///
/// `body` is only made when it is sent, of the bytes that it is given; `len` is the length of the file.
pub(crate) fn file(
    request: Fields<'_>,
    head: bool,
    meta: &Meta,
    len: u64,
    body: impl FnOnce(Range<u64>) -> Body,
) -> Reply {
    if is_unchanged(request, meta) {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(ETAG, meta.etag.clone());
        headers.insert(LAST_MODIFIED, meta.last_modified.clone());
        headers.insert(CACHE_CONTROL, REVALIDATE);
        return Reply::new(StatusCode::NOT_MODIFIED, headers, Body::Empty);
    }
    let mut headers = HeaderMap::new();
    // A range is defined for GET only (RFC 9110, 14.2).
    let part = if head { Part::Whole } else { range::wanted(request, meta, len) };
    let (status, bytes) = match part {
        Part::Whole => (StatusCode::OK, 0..len),
        Part::Bytes(bytes) => {
            headers.insert(CONTENT_RANGE, content_range(format!("bytes {}-{}/{len}", bytes.start, bytes.end - 1)));
            (StatusCode::PARTIAL_CONTENT, bytes)
        }
        Part::Outside => {
            headers.insert(CONTENT_RANGE, content_range(format!("bytes */{len}")));
            return Reply::new(StatusCode::RANGE_NOT_SATISFIABLE, headers, Body::Empty);
        }
    };
    let shared = Some(meta.head.clone());
    if head {
        return Reply { shared, content_len: Some(len), ..Reply::new(status, headers, Body::Empty) };
    }
    Reply { shared, ..Reply::new(status, headers, body(bytes)) }
}

/// The fields that every reply with this content has.
pub(crate) fn shared_head(content_type: &HeaderValue, etag: &HeaderValue, last_modified: &HeaderValue) -> SharedHead {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(ETAG, etag.clone());
    headers.insert(LAST_MODIFIED, last_modified.clone());
    headers.insert(CACHE_CONTROL, REVALIDATE);
    headers.insert(ACCEPT_RANGES, BYTES);
    SharedHead::new(headers)
}

fn content_range(range: String) -> HeaderValue {
    HeaderValue::try_from(range).expect("digits and a few signs are header characters")
}

/// `301` to the same place with a slash at its end, so that relative links in the directory's page lead into it.
pub(crate) fn with_slash(path: &str, query: Option<&str>, head: bool) -> Reply {
    let location = match query {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    };
    let mut reply =
        page(StatusCode::MOVED_PERMANENTLY, "Moved", "This is a directory; its address ends with a slash.", head);
    if let Ok(location) = HeaderValue::try_from(location) {
        reply.headers.insert(LOCATION, location);
    }
    reply
}

/// A small page for a person who came where nothing is.
pub(crate) fn problem(status: StatusCode, head: bool) -> Reply {
    let (title, text) = words(status);
    let mut reply = page(status, title, text, head);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => drop(reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"))),
        StatusCode::SERVICE_UNAVAILABLE => drop(reply.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => {}
    }
    reply
}

/// What a problem's page says.
fn words(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::NOT_FOUND => {
            ("Nothing here", "There is no page at this address. It may have moved, or the link is mistyped.")
        }
        StatusCode::BAD_REQUEST => {
            ("That is no address", "The server could not make sense of the request, or its path leads out of the site.")
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            ("Only for reading", "Pages of this site can be read (GET, HEAD) and nothing else.")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            ("Full house", "The server has all the connections that it can take. Please try again in a moment.")
        }
        StatusCode::URI_TOO_LONG => ("A very long address", "The address is longer than this server takes."),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ("Too much to carry", "The request has more, or longer, headers than this server takes.")
        }
        _ => ("That went wrong", "The server could not read this page. Its log says why."),
    }
}

/// The same page with its head, for a request that never became one; the connection closes behind it.
pub(crate) fn raw_problem(status: StatusCode) -> Bytes {
    let (title, text) = words(status);
    let page = problem_page(status, title, text);
    let (code, reason, len) = (status.as_str(), status.canonical_reason().unwrap_or_default(), page.len());
    let head = "connection: close\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-cache\r\n";
    format!("HTTP/1.1 {code} {reason}\r\n{head}content-length: {len}\r\n\r\n{page}").into()
}

/// A response with JSON that is true only now.
pub(crate) fn json(text: String, head: bool) -> Reply {
    whole(StatusCode::OK, "application/json", "no-store", text, head)
}

fn page(status: StatusCode, title: &str, text: &str, head: bool) -> Reply {
    whole(status, "text/html; charset=utf-8", "no-cache", problem_page(status, title, text), head)
}

fn problem_page(status: StatusCode, title: &str, text: &str) -> String {
    include_str!("problem.html").replace("{code}", status.as_str()).replace("{title}", title).replace("{text}", text)
}

fn whole(status: StatusCode, content_type: &'static str, cache: &'static str, text: String, head: bool) -> Reply {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    match head {
        true => Reply { content_len: Some(text.len() as u64), ..Reply::new(status, headers, Body::Empty) },
        false => Reply::new(status, headers, Body::Whole(text.into())),
    }
}

/// Whether the client's copy is the file as it is. `If-None-Match` decides alone where it is given (RFC 9110, 13.2.2).
fn is_unchanged(request: Fields<'_>, meta: &Meta) -> bool {
    if request.first("if-none-match").is_some() {
        return request.all("if-none-match").any(|tags| matches_tag(tags, meta.etag.as_bytes()));
    }
    let Some(since) = request.first("if-modified-since") else {
        return false;
    };
    if since == meta.last_modified.as_bytes() {
        return true;
    }
    let since = std::str::from_utf8(since).ok().and_then(|since| httpdate::parse_http_date(since).ok());
    let since_s = since.and_then(|since| since.duration_since(std::time::UNIX_EPOCH).ok()).map(|since| since.as_secs());
    since_s.is_some_and(|since_s| meta.modified_s <= since_s)
}

/// Whether a list of entity tags has this one or is `*`. Weak tags match: the comparison is for GET and HEAD only.
fn matches_tag(tags: &[u8], etag: &[u8]) -> bool {
    tags.split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag)
}

/// Browsers keep a page but ask each time whether it changed: a changed file shows at the next reload.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// Parts are counted in bytes.
const BYTES: HeaderValue = HeaderValue::from_static("bytes");

#[cfg(test)]
mod tests {
    use super::matches_tag;

    #[test]
    fn tags_are_compared_whole() {
        for tags in ["\"a-1\"", "W/\"a-1\"", "\"x\", \"a-1\"", "\"x\",W/\"a-1\" ", "*"] {
            assert!(matches_tag(tags.as_bytes(), b"\"a-1\""), "{tags}");
        }
        for tags in ["", "a-1", "\"a-12\"", "\"x\"", "W/"] {
            assert!(!matches_tag(tags.as_bytes(), b"\"a-1\""), "{tags}");
        }
    }
}
