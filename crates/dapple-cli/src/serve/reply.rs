//! Replies that are not files: small pages about errors, redirects, allowed methods.

use dapple::stage::{Reason, Refused};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::labels::{ACCEPT_ENCODING, NOSNIFF};
use crate::http::{Body, Reply};

/// `301` to the same place with a slash at its end, so that relative links in the directory's page
/// lead into it.
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

/// A small error page for people.
pub(crate) fn problem(status: StatusCode, head: bool) -> Reply {
    let (title, text) = words(status);
    let mut reply = page(status, title, text, head);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => drop(reply.headers.insert(ALLOW, ALLOWED)),
        StatusCode::NOT_ACCEPTABLE => drop(reply.headers.insert(VARY, ACCEPT_ENCODING)),
        StatusCode::SERVICE_UNAVAILABLE => drop(reply.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => {}
    }
    reply
}

/// A `503` because the disk is busy: the reason, and when to retry.
pub(crate) fn refusal(refused: &Refused, head: bool) -> Reply {
    let reason = reason(&refused.reason);
    let text = format!("{reason} Please try again soon.");
    let mut reply = page(StatusCode::SERVICE_UNAVAILABLE, "The disk is busy", &text, head);
    // The field has whole seconds, and zero would invite the client to retry at once.
    let seconds = refused.retry_after.as_secs() + u64::from(refused.retry_after.subsec_nanos() > 0);
    reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    // If a rule replaces this page with one of the site's, this field is all that is left of the
    // reason.
    if let Ok(reason) = HeaderValue::try_from(reason) {
        reply.headers.insert(REFUSED_REASON, reason);
    }
    reply
}

/// The reason why the disk was not asked. All requests that wait for one page may get this reply,
/// so it says nothing about the first of them.
fn reason(reason: &Reason) -> String {
    match reason {
        Reason::Delay { predicted, target } => format!(
            "This page has to be read from the disk, which is so busy that it would take about {} ms; the limit is \
            {} ms at present.",
            predicted.as_millis().max(1),
            target.as_millis().max(1)
        ),
        Reason::Share { .. } => {
            "This page has to be read from the disk, which is busy, and each client has a fair share of it.".to_owned()
        }
        Reason::Full { len } => {
            format!(
                "This page has to be read from the disk, and {len} others wait for that already, which is the limit."
            )
        }
        other => format!("This page has to be read from the disk, which cannot be asked: {other}."),
    }
}

/// The title and text of an error page.
fn words(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::NOT_FOUND => {
            ("Nothing here", "There is no page at this address. It may have moved, or the link is mistyped.")
        }
        StatusCode::BAD_REQUEST => {
            ("Not an address", "The server could not understand the request, or its path leads out of the site.")
        }
        StatusCode::REQUEST_TIMEOUT => ("Too slow", "The request did not arrive in time."),
        StatusCode::PAYLOAD_TOO_LARGE => ("Too large", "The request is longer than this server accepts."),
        StatusCode::EXPECTATION_FAILED => {
            ("Unknown expectation", "The request expects something that this server does not support.")
        }
        StatusCode::HTTP_VERSION_NOT_SUPPORTED => ("An unknown language", "The server speaks HTTP/1.1 and HTTP/2."),
        StatusCode::MISDIRECTED_REQUEST => {
            ("Not this way", "The address asks for an encrypted connection, and this one is not encrypted.")
        }
        StatusCode::NOT_ACCEPTABLE => {
            ("Not in that form", "The request refuses the plain content, and accepts no coding that this server has.")
        }
        StatusCode::PRECONDITION_FAILED => {
            ("Another state", "The page is not in the state that the request asks for, or no longer.")
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            ("Past the end", "The request asks for a part that the page does not have.")
        }
        StatusCode::NOT_IMPLEMENTED => ("Unknown method", "The server does not know the method of the request."),
        StatusCode::METHOD_NOT_ALLOWED => ("Only for reading", "Pages of this site can only be read (GET, HEAD)."),
        StatusCode::SERVICE_UNAVAILABLE => ("Full house", "The server is full at the moment. Please try again soon."),
        StatusCode::URI_TOO_LONG => ("A very long address", "The address is longer than this server accepts."),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            ("Too large", "The request has more, or longer, headers than this server accepts.")
        }
        StatusCode::REQUEST_TIMEOUT => ("Too slow", "The request took longer to arrive than this server waits."),
        StatusCode::PAYLOAD_TOO_LARGE => ("Too large", "The request is larger than this server accepts."),
        StatusCode::EXPECTATION_FAILED | StatusCode::NOT_IMPLEMENTED => {
            ("Not known here", "The request uses a part of HTTP that this server does not support.")
        }
        StatusCode::HTTP_VERSION_NOT_SUPPORTED => {
            ("Another version", "This server speaks HTTP/1.1, and HTTP/1.0 with older clients.")
        }
        _ => ("That went wrong", "The server could not read this page. Its log says why."),
    }
}

/// A JSON response that is valid only now.
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
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    match head {
        true => Reply { content_len: Some(text.len() as u64), ..Reply::new(status, headers, Body::Empty) },
        false => Reply::new(status, headers, Body::Whole(text.into())),
    }
}

/// `204`: the allowed methods.
pub(crate) fn options() -> Reply {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(ALLOW, ALLOWED);
    Reply::new(StatusCode::NO_CONTENT, headers, Body::Empty)
}

/// A redirect by a rule, which keeps the query.
pub(crate) fn redirect(status: StatusCode, to: String, query: Option<&str>, head: bool) -> Reply {
    let mut reply = page(status, "Moved", "This page is at another address.", head);
    let location = match query {
        Some(query) if !to.contains(['?', '#']) => format!("{to}?{query}"),
        _ => to,
    };
    if let Ok(location) = HeaderValue::try_from(location) {
        reply.headers.insert(LOCATION, location);
    }
    reply
}

/// The reason for a refusal, in the same form as `dapple::serve`.
const REFUSED_REASON: HeaderName = HeaderName::from_static("refused-reason");

/// The methods for files.
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple::stage::{Reason, Refused};

    use super::{Body, REFUSED_REASON, RETRY_AFTER, refusal};

    fn said(reason: Reason, retry_after_ms: u64) -> (String, String) {
        let reply = refusal(&Refused::new(reason, Duration::from_millis(retry_after_ms)), false);
        assert_eq!(reply.status, 503);
        let Body::Whole(page) = reply.body else { panic!("a page is whole") };
        let retry_after = reply.headers[RETRY_AFTER].to_str().unwrap().to_owned();
        let page = String::from_utf8(page.to_vec()).unwrap();
        let in_header = reply.headers[REFUSED_REASON].to_str().unwrap();
        assert!(page.contains(in_header), "{in_header}: {page}");
        (page, retry_after)
    }

    #[test]
    fn a_refusal_says_why_and_when_to_retry() {
        let [predicted, target] = [1_234, 1_000].map(Duration::from_millis);
        let delay = Reason::Delay { predicted, target };
        for (reason, words, retry_after_ms, seconds) in [
            (delay.clone(), "it would take about 1234 ms; the limit is 1000 ms", 0, "1"),
            (delay, "Please try again soon.", 1_001, "2"),
            (Reason::Share { len: 7 }, "each client has a fair share of it", 1, "1"),
            (Reason::Full { len: 1_024 }, "1024 others wait for that already", 60_000, "60"),
            (Reason::Deadline, "its deadline cannot be met", 0, "1"),
        ] {
            let (page, retry_after) = said(reason, retry_after_ms);
            assert!(page.contains(words) && page.contains("The disk is busy"), "{page}");
            assert_eq!(retry_after, seconds, "{page}");
        }
    }
}
