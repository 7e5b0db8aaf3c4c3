//! Validation of stored responses, and the behavior if the origin does not confirm them (RFC 9111,
//! 4.3; RFC 5861).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::origin::Origin;
use super::{get, note, number, reply};
use crate::support::{Server, eventually};

#[test]
fn a_304_freshens_the_stored_response() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| match asked.header("if-none-match") {
        None => reply("200 OK", "cache-control: max-age=0\r\netag: \"a\"\r\nx-old: 1\r\nx-both: 1\r\n", "body"),
        Some(_) => {
            let head = "cache-control: max-age=60\r\netag: \"a\"\r\nx-both: 2\r\nx-new: 2\r\n";
            format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n").into_bytes()
        }
    });
    let url = origin.url("/");
    assert_eq!(get(&proxy, &url, "").text(), "body");
    for _ in 0..2 {
        let response = get(&proxy, &url, "");
        assert_eq!((response.status, response.text()), (200, "body"));
        let fields = ["x-old", "x-both", "x-new"].map(|name| response.header(name));
        assert_eq!(fields, [Some("1"), Some("2"), Some("2")], "RFC 9111, 3.2");
    }
    assert_eq!(origin.count(), 2, "the third was fresh");
    assert_eq!(origin.asked()[1].header("if-none-match"), Some("\"a\""));
    assert_eq!(number(&proxy, "revalidated"), 1);
}

#[test]
fn a_date_validates_if_there_is_no_tag() {
    let proxy = Server::start_proxy(&[]);
    let date = "Tue, 01 Jan 2019 00:00:00 GMT";
    let origin = Origin::of(move |asked| match asked.header("if-modified-since") {
        None => reply("200 OK", &format!("cache-control: max-age=0\r\nlast-modified: {date}\r\n"), "body"),
        Some(since) => format!("HTTP/1.1 304 Not Modified\r\nx-since: {since}\r\n\r\n").into_bytes(),
    });
    get(&proxy, &origin.url("/"), "");
    let second = get(&proxy, &origin.url("/"), "");
    assert_eq!((second.text(), second.header("x-since")), ("body", Some(date)));
    assert!(note(&second).contains("fwd-status=304"), "{}", note(&second));
}

#[test]
fn a_304_about_something_else_is_not_used() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| match asked.header("if-none-match") {
        Some(_) => b"HTTP/1.1 304 Not Modified\r\netag: \"b\"\r\n\r\n".to_vec(),
        None => {
            let head = format!("cache-control: max-age=0\r\netag: \"{}\"\r\n", asked.number);
            reply("200 OK", &head, &format!("body {}", asked.number))
        }
    });
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "body 0");
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "body 2", "asked once more, without a condition");
}

#[test]
fn a_client_with_a_condition_gets_its_304_from_a_whole_answer() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| reply("200 OK", "cache-control: max-age=60\r\netag: \"a\"\r\n", "body"));
    let first = get(&proxy, &origin.url("/"), "if-none-match: \"a\"\r\n");
    assert_eq!((first.status, first.body.len()), (304, 0));
    assert!(eventually(Duration::from_secs(20), || number(&proxy, "addresses") == 1));
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "body");
    assert_eq!(origin.count(), 1, "it was kept for all");
    assert_eq!(origin.asked()[0].header("if-none-match"), None);
}

/// An origin that answers once, and then fails as `failure` says.
fn failing(head: &'static str, failure: &'static str) -> Origin {
    Origin::start(move |asked, stream| {
        use std::io::Write;
        let answer = if asked.number == 0 { reply("200 OK", head, "body") } else { failure.as_bytes().to_vec() };
        stream.write_all(&answer).is_ok() && asked.number == 0
    })
}

#[test]
fn stale_responses_replace_errors() {
    let proxy = Server::start_proxy(&[]);
    let error = "HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno";
    let allowed = "cache-control: max-age=0, stale-if-error=60\r\netag: \"a\"\r\n";
    let never = "cache-control: max-age=0, stale-if-error=60, must-revalidate\r\netag: \"a\"\r\n";
    let unsaid = "cache-control: max-age=0\r\netag: \"a\"\r\n";
    for (rule, head, failure, status) in [
        ("RFC 5861, 4: an error", allowed, error, 200),
        ("RFC 5861, 4: no answer", allowed, "", 200),
        ("4.2.4: nobody allowed it", unsaid, error, 503),
        ("4.2.4: not allowed, no answer", unsaid, "", 502),
        ("5.2.2.2: the origin's own error", never, error, 503),
        ("5.2.2.2: 504 without an answer", never, "", 504),
    ] {
        let origin = failing(head, failure);
        assert_eq!(get(&proxy, &origin.url("/"), "").text(), "body", "{rule}");
        let second = get(&proxy, &origin.url("/"), "");
        assert_eq!(second.status, status, "{rule}");
        assert_eq!(second.text() == "body", status == 200, "{rule}");
    }
}

#[test]
fn a_stale_answer_now_and_a_fresh_one_for_the_next() {
    // RFC 5861, 3.
    let proxy = Server::start_proxy(&[]);
    let count = Arc::new(AtomicUsize::new(0));
    let counting = count.clone();
    let origin = Origin::of(move |asked| {
        counting.fetch_add(1, Ordering::Relaxed);
        let seconds = if asked.number == 0 { 0 } else { 600 };
        let head =
            format!("cache-control: max-age={seconds}, stale-while-revalidate=600\r\netag: \"{}\"\r\n", asked.number);
        reply("200 OK", &head, &format!("body {}", asked.number))
    });
    let url = origin.url("/");
    assert_eq!(get(&proxy, &url, "").text(), "body 0");
    assert_eq!(get(&proxy, &url, "").text(), "body 0");
    assert!(eventually(Duration::from_secs(20), || get(&proxy, &url, "").text() == "body 1"));
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_head_or_a_part_refreshes_the_whole() {
    let proxy = Server::start_proxy(&[]);
    for (method, headers) in [("HEAD", ""), ("GET", "range: bytes=0-1\r\n")] {
        let origin = Origin::of(|asked| {
            let seconds = if asked.number == 0 { 0 } else { 600 };
            let head = format!("cache-control: max-age={seconds}, stale-while-revalidate=600\r\nage: 0\r\n");
            let body = if asked.method == "HEAD" { "" } else { "whole body" };
            reply("200 OK", &head, body)
        });
        let url = origin.url("/");
        assert_eq!(get(&proxy, &url, "").text(), "whole body");
        super::ask(&proxy, method, &url, headers);
        assert!(eventually(Duration::from_secs(20), || origin.count() == 2), "{method}");
        let asked = origin.asked()[1].clone();
        assert_eq!((asked.method.as_str(), asked.header("range")), ("GET", None));
        assert!(eventually(Duration::from_secs(20), || note(&get(&proxy, &url, "")).contains("ttl=5")));
        let response = get(&proxy, &url, "");
        assert_eq!((response.text(), response.header("age")), ("whole body", Some("0")));
    }
}
