//! The boundaries of requests: which framing is accepted, and which is refused because other
//! parsers could read it differently.

use crate::support::{Client, Server, Site, eventually, noise};

/// Sends `request` on a connection of its own, followed by another request. Returns the status, and
/// whether that answer was the last on the connection.
fn answer(server: &Server, request: &str) -> (u16, bool) {
    let mut client = server.connect();
    client.send(format!("{request}GET / HTTP/1.1\r\nHost: smuggled\r\n\r\n"));
    let response = client.read_response();
    let rest = client.read_to_end_of_answers();
    (response.status, rest == 0)
}

impl Client {
    /// The number of answers until the server ends the connection.
    fn read_to_end_of_answers(&mut self) -> usize {
        self.end();
        let rest = self.read_to_end().unwrap_or_default();
        rest.windows(9).filter(|window| window == b"HTTP/1.1 ").count()
    }
}

#[test]
fn requests_that_others_read_differently_are_refused() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let get = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let post = |lines: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
    for (request, status) in [
        // RFC 9112, 2.2: line ends, and bytes before the request.
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ: z\r\n\r\n".to_owned(), 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned(), 400),
        // 2.3 and 3: versions and request lines.
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(), 505),
        ("GET /\r\n\r\n".to_owned(), 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        // 3.2: hosts and targets.
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n".to_owned(), 400),
        ("GET /#part HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000)), 414),
        // 5: fields.
        (get("X : y\r\n"), 400),
        (get("X: y\r\n z\r\n"), 400),
        (get("X: y\0\r\n"), 400),
        (get(": y\r\n"), 400),
        (get(&"X: y\r\n".repeat(200)), 431),
        (get(&format!("X: {}\r\n", "y".repeat(20_000))), 431),
        // 6: lengths.
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400),
        (post("Content-Length: 4\r\nContent-Length: 4\r\n", "body"), 400),
        (post("Content-Length: 4, 4\r\n", "body"), 400),
        (post("Content-Length: +4\r\n", "body"), 400),
        (post("Content-Length: 99999999999999999999\r\n", ""), 413),
        (post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501),
        (post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        // 7.1: chunks.
        (post("Transfer-Encoding: chunked\r\n", "+4\r\nbody\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "4\nbody\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "4\r\nbody!\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "4;a\nb\r\nbody\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "10000000000000004\r\nbody\r\n0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\n", "0\r\nX : y\r\n\r\n"), 400),
        // RFC 9110, 10.1.1: expectations.
        (get("Expect: wonders\r\n"), 417),
    ] {
        assert_eq!(answer(&server, &request), (status, true), "{request:?}");
    }
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn a_body_is_read_and_the_next_request_begins_after_it() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    let chunked = |body: &str| {
        format!("Transfer-Encoding: chunked\r\n\r\n{:x};x=\"y\"\r\n{body}\r\n0\r\nT: t\r\n\r\n", body.len())
    };
    for lines in [
        format!("Content-Length: {}\r\n\r\n{inner}", inner.len()),
        chunked(inner),
        chunked(&inner.repeat(2_000)),
        format!("Content-Length: {}\r\n\r\n{}", inner.len() * 2_000, inner.repeat(2_000)),
    ] {
        let mut client = server.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}GET /missing HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((client.read_response().status, client.read_response().status), (200, 404));
        assert_eq!(client.read_to_end_of_answers(), 0);
    }
    // Also if it arrives a byte at a time.
    let mut client = server.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{}GET /missing HTTP/1.1\r\nHost: a\r\n\r\n", chunked("body"));
    for byte in request.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!((client.read_response().status, client.read_response().status), (200, 404));
}

#[test]
fn an_unread_body_has_a_limit() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n");
    let response = client.read_response();
    assert_eq!((response.status, response.header("connection")), (405, Some("close")));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    // The server stops reading: at some point sending fails, or its answer has arrived.
    let stopped = (0..1_000).find(|_| !client.try_send(&chunk));
    assert!(stopped.is_some() || client.read_head().status == 405);
}

#[test]
fn a_client_that_asks_first_gets_no_100_for_an_unwanted_body() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let response = client.read_response();
    assert_eq!((response.status, response.header("connection")), (405, Some("close")));
    assert_eq!(client.read_to_end_of_answers(), 0);
}

#[test]
fn a_client_that_has_ended_its_side_gets_its_answers() {
    let site = Site::with_index();
    site.write("large.bin", noise(4 << 20, 7));
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    client.end();
    assert_eq!(client.read_response().text(), "<h1>start</h1>");
    assert_eq!(client.read_response().body.len(), 4 << 20);
    assert_eq!(client.read_to_end().unwrap(), b"");
    // A request that it cut short gets an answer too.
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHos");
    client.end();
    assert_eq!(client.read_response().status, 400);
}

#[test]
fn each_version_keeps_connections_by_its_rules() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.read_response().header("connection"), Some("keep-alive"));
    }
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.read_response().header("connection"), Some("close"));
    assert_eq!(client.read_to_end().unwrap(), b"");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n");
    assert_eq!(client.read_response().header("connection"), Some("close"));
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn targets_of_all_forms_are_understood() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    client.send("GET http://example.com/ HTTP/1.1\r\nHost: other\r\n\r\n");
    assert_eq!(client.read_response().text(), "<h1>start</h1>");
    client.send("GET http://example.com HTTP/1.1\r\nHost:\r\n\r\n");
    assert_eq!(client.read_response().text(), "<h1>start</h1>");
    client.send("\r\n\r\nGET / HTTP/1.1\r\nhOST: a\r\n\r\n");
    assert_eq!(client.read_response().text(), "<h1>start</h1>");
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_order_and_others_get_their_turn() {
    let site = Site::with_index();
    site.write("a.txt", "a");
    site.write("b.txt", "b".repeat(5_000));
    let server = Server::start(&site.path, &[]);
    let mut client = server.connect();
    let requests = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(requests.repeat(300));
    assert!(eventually(std::time::Duration::from_secs(40), || server.get("/").status == 200));
    for _ in 0..300 {
        assert_eq!((client.read_response().text(), client.read_response().body.len()), ("a", 5_000));
        assert_eq!(client.read_head().header("content-length"), Some("14"));
    }
}
