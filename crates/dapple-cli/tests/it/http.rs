//! The protocol: methods, status codes, headers, reused connections.

use std::time::Duration;

use crate::support::{Server, Site, dapple};

#[test]
fn get_and_head_have_the_same_fields() {
    let site = Site::with_index();
    site.write("style.css", "body { color: teal }");
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let get = client.get("/style.css");
    assert_eq!((get.status, get.text()), (200, "body { color: teal }"));
    assert_eq!(get.header("content-type"), Some("text/css; charset=utf-8"));
    assert!(get.header("date").is_some() && get.header("last-modified").is_some() && get.header("etag").is_some());
    let head = client.request("HEAD", "/style.css", "");
    assert_eq!(head.status, 200);
    for name in ["content-length", "content-type", "last-modified", "etag", "cache-control"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    // The connection is still in step: HEAD had no body.
    assert_eq!(client.get("/").text(), "<h1>start</h1>");
}

#[test]
fn a_directory_is_served_by_its_index() {
    let site = Site::with_index();
    site.write("docs/index.html", "docs");
    site.write("bare/file.txt", "x");
    let server = Server::start(&site.path, &[]);
    assert_eq!(server.get("/docs/").text(), "docs");
    let moved = server.get("/docs?a=b");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/docs/?a=b")));
    assert_eq!(server.get("/bare/").status, 404);
    assert_eq!(server.get("/docs/index.html/").status, 404);
    assert_eq!(server.get("/docs/index.html?v=2").text(), "docs");
}

#[test]
fn a_missing_file_gets_a_page() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let missing = client.get("/missing.html");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("Nothing here"));
    let bad = client.get("/%zz");
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("<!doctype html>"));
    assert_eq!(client.request("HEAD", "/missing.html", "").status, 404);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn only_reading_is_allowed() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    for (method, status, allow) in [
        ("POST", 405, Some("GET, HEAD, OPTIONS")),
        ("PUT", 405, Some("GET, HEAD, OPTIONS")),
        ("DELETE", 405, Some("GET, HEAD, OPTIONS")),
        ("PATCH", 405, Some("GET, HEAD, OPTIONS")),
        ("OPTIONS", 204, Some("GET, HEAD, OPTIONS")),
        ("BREW", 501, None),
        ("get", 501, None),
    ] {
        let response = server.connect().request(method, "/", "Content-Length: 0\r\n");
        assert_eq!((response.status, response.header("allow")), (status, allow), "{method}");
    }
    let everything = server.connect().request("OPTIONS", "*", "");
    assert_eq!((everything.status, everything.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
}

#[test]
fn malformed_requests_are_refused() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let nonsense = [
        "NONSENSE\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ];
    for request in nonsense {
        let mut client = server.connect();
        client.send(request);
        assert_eq!(client.read_head().status, 400, "{request:?}");
    }
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn input_that_is_not_http_gets_a_page_too() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    for (request, code) in [("GARBAGE\r\n\r\n", "400"), ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "400"), (&long, "431")]
    {
        let mut client = server.connect();
        client.send(request);
        let answer = String::from_utf8(client.read_to_end().unwrap_or_default()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(answer.contains("</html>"), "{answer}");
    }
}

#[test]
fn one_connection_serves_many_requests() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/").text(), "<h1>start</h1>");
    }
    let last = client.request("GET", "/", "Connection: close\r\n");
    assert_eq!(last.header("connection"), Some("close"));
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = Site::new();
    for number in 0..50 {
        site.write(&format!("{number}.txt"), format!("page {number}"));
    }
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let requests: String = (0..50).map(|number| format!("GET /{number}.txt HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests);
    for number in 0..50 {
        assert_eq!(client.read_response().text(), format!("page {number}"));
    }
}

#[test]
fn a_request_may_arrive_in_pieces() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for byte in b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.read_response().status, 200);
}

#[test]
fn http_1_0_gets_its_answer_and_then_the_end() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.read_response().text(), "<h1>start</h1>");
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn a_current_copy_is_not_sent_again() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let first = client.get("/");
    let (etag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    for header in [
        format!("If-None-Match: {etag}\r\n"),
        format!("If-None-Match: \"other\", W/{etag}\r\n"),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {modified}\r\n"),
        "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n".to_owned(),
    ] {
        let response = client.request("GET", "/", &header);
        assert_eq!((response.status, response.body.len()), (304, 0), "{header}");
        assert!(response.header("etag").is_some());
    }
    for header in [
        "If-None-Match: \"other\"\r\n".to_owned(),
        "If-Modified-Since: Thu, 01 Jan 1998 00:00:00 GMT\r\n".to_owned(),
        "If-Modified-Since: yesterday\r\n".to_owned(),
        // The tag decides if both are given.
        format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {modified}\r\n"),
    ] {
        assert_eq!(client.request("GET", "/", &header).status, 200, "{header}");
    }
}

#[test]
fn at_the_limit_a_client_is_told_so() {
    let site = Site::with_index();
    site.write("large.bin", crate::support::noise(16 << 20, 9));
    let server = Server::start(&site.path, &["--connections", "2", "--cache-mb", "1"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    for client in [&mut first, &mut second] {
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
    }
    let mut third = server.connect();
    third.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let refusal = third.read_response();
    assert_eq!((refusal.status, refusal.header("retry-after")), (503, Some("1")));
    assert_eq!(third.read_to_end().unwrap(), b"");
    drop(first);
    let taken = crate::support::eventually(Duration::from_secs(40), || server.get("/").status == 200);
    assert!(taken, "a connection that ended makes room for another");
}

#[test]
fn the_line_on_stdout_says_where_and_how() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let expected =
        format!("dapple: serving {} on http://127.0.0.1:{} with 2 workers\n", site.path.display(), server.port);
    assert_eq!(server.line, expected);
}

#[test]
fn help_shows_examples() {
    let help = dapple().args(["serve", "--help"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    for part in ["--addr", "--port", "--workers", "--cache-mb", "--serial", "--follow", "Examples:"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}
