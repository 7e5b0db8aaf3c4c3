//! Conditional requests against the real server: RFC 9110, section 13.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Client, Server, Site};

/// A server with one page, last changed long ago, and the tag and date of the page.
fn start() -> (Site, Server, String, String) {
    let site = Site::new();
    site.write("page.html", "<p>page</p>");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    let file = std::fs::File::options().write(true).open(site.path.join("page.html")).unwrap();
    file.set_modified(long_ago).unwrap();
    let server = Server::start(&site.path, &[]);
    let page = server.get("/page.html");
    let (etag, modified) = (page.header("etag").unwrap().to_owned(), page.header("last-modified").unwrap().to_owned());
    assert_eq!(modified, "Sun, 06 Nov 1994 08:49:37 GMT");
    (site, server, etag, modified)
}

fn status(client: &mut Client, method: &str, lines: &str) -> u16 {
    client.request(method, "/page.html", lines).status
}

#[test]
fn every_condition_in_its_order_of_precedence() {
    let (_site, server, etag, modified) = start();
    let before = "Sun, 06 Nov 1994 08:49:36 GMT";
    let mut client = server.connect();
    for (lines, expected) in [
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: *\r\n".to_owned(), 200),
        (format!("If-Match: W/{etag}\r\n"), 412),
        ("If-Match: \"other\"\r\n".to_owned(), 412),
        (format!("If-Match: \"other\"\r\nIf-Match: {etag}\r\n"), 200),
        (format!("If-Match: \"other\"\r\nIf-None-Match: {etag}\r\n"), 412),
        (format!("If-Match: {etag}\r\nIf-Unmodified-Since: {before}\r\n"), 200),
        (format!("If-Match: {etag}\r\nIf-None-Match: {etag}\r\n"), 304),
        (format!("If-Unmodified-Since: {modified}\r\n"), 200),
        (format!("If-Unmodified-Since: {before}\r\n"), 412),
        ("If-Unmodified-Since: before\r\n".to_owned(), 200),
        (format!("If-Unmodified-Since: {before}\r\nIf-None-Match: {etag}\r\n"), 412),
        (format!("If-None-Match: W/{etag}\r\n"), 304),
        ("If-None-Match: \"other\"\r\nIf-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT\r\n".to_owned(), 200),
        (format!("If-None-Match: {etag}\r\nIf-Modified-Since: {before}\r\n"), 304),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        (format!("If-Modified-Since: {before}\r\n"), 200),
        ("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT\r\n".to_owned(), 304),
        ("If-Modified-Since: Sun Nov  6 08:49:37 1994\r\n".to_owned(), 304),
        ("If-Modified-Since: 1994-11-06T08:49:37Z\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {modified}, {modified}\r\n"), 200),
    ] {
        assert_eq!(status(&mut client, "GET", &lines), expected, "{lines}");
        assert_eq!(status(&mut client, "HEAD", &lines), expected, "HEAD, {lines}");
    }
}

/// RFC 9110, section 15.4.5: the fields that a cache needs, without a description of the missing
/// content.
#[test]
fn a_304_has_the_fields_that_a_cache_needs() {
    let (_site, server, etag, _) = start();
    let reply = server.connect().request("GET", "/page.html", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(reply.status, 304);
    assert_eq!(reply.header("etag"), Some(etag.as_str()));
    assert_eq!((reply.header("cache-control"), reply.header("vary")), (Some("no-cache"), Some("accept-encoding")));
    assert!(reply.header("date").is_some());
    for name in ["content-type", "content-encoding", "content-range", "last-modified", "accept-ranges"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
}

/// RFC 9110, section 13.2.1: without the conditions these replies would be no success, so the
/// conditions do not count.
#[test]
fn conditions_do_not_count_without_a_page() {
    let (site, server, ..) = start();
    site.write("folder/index.html", "x");
    let mut client = server.connect();
    for lines in ["If-Match: *\r\n", "If-None-Match: *\r\n", "If-Match: \"x\"\r\n"] {
        assert_eq!(client.request("GET", "/missing", lines).status, 404, "{lines}");
        assert_eq!(client.request("GET", "/folder", lines).status, 301, "{lines}");
        assert_eq!(client.request("OPTIONS", "/page.html", lines).status, 204, "{lines}");
        assert_eq!(
            client.request("POST", "/page.html", &format!("{lines}Content-Length: 0\r\n")).status,
            405,
            "{lines}"
        );
    }
}

#[test]
fn if_range_needs_exactly_the_same_state() {
    let (_site, server, etag, modified) = start();
    let mut client = server.connect();
    for (condition, expected) in [
        (etag.clone(), 206),
        (modified, 206),
        (format!("W/{etag}"), 200),
        ("\"other\"".to_owned(), 200),
        ("Sun, 06 Nov 1994 08:49:38 GMT".to_owned(), 200),
        ("Sun, 06 Nov 1994 08:49:36 GMT".to_owned(), 200),
        ("nonsense".to_owned(), 200),
    ] {
        let lines = format!("Range: bytes=0-2\r\nIf-Range: {condition}\r\n");
        let reply = client.request("GET", "/page.html", &lines);
        assert_eq!(reply.status, expected, "{condition}");
        assert_eq!(reply.text(), if expected == 206 { "<p>" } else { "<p>page</p>" }, "{condition}");
    }
    // Conditions are evaluated before ranges.
    let lines = format!("Range: bytes=0-2\r\nIf-None-Match: {etag}\r\n");
    assert_eq!(status(&mut client, "GET", &lines), 304);
    assert_eq!(status(&mut client, "GET", "Range: bytes=0-2\r\nIf-Match: \"x\"\r\n"), 412);
    // `If-Range` without a range is ignored.
    assert_eq!(status(&mut client, "GET", "If-Range: \"other\"\r\n"), 200);
}

/// A file changed in this second may change again without a new date (RFC 9110, section 8.8.2.2).
#[test]
fn a_recent_date_is_too_weak_for_ranges() {
    let site = Site::new();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let this_second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // All of it has to happen within one second; on a slow machine or at the end of a second, try
    // again.
    let is_shown = (0..100).any(|attempt| {
        let page = format!("page-{attempt}.txt");
        site.write(&page, "of this second");
        let written = site.path.join(&page).metadata().unwrap().modified().unwrap();
        let modified = client.get(&format!("/{page}")).header("last-modified").unwrap().to_owned();
        let reply =
            client.request("GET", &format!("/{page}"), &format!("Range: bytes=0-2\r\nIf-Range: {modified}\r\n"));
        if written.duration_since(UNIX_EPOCH).unwrap().as_secs() != this_second() {
            return false;
        }
        assert_eq!(reply.status, 200);
        true
    });
    assert!(is_shown);
}
