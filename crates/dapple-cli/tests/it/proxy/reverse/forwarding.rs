//! Requests to an upstream, and its responses.

use std::io::Write;

use super::start;
use crate::proxy::origin::{Asked, Origin};
use crate::proxy::reply;
use crate::support::Server;

/// Answers with the request's own head.
fn mirror() -> Origin {
    Origin::of(|asked: &Asked| reply("200 OK", "x-served: 1\r\nconnection: x-gone\r\nx-gone: 1\r\n", &asked.head))
}

fn asked(server: &Server, headers: &str) -> String {
    let mut client = server.connect();
    client.send(format!("GET /a?b=c HTTP/1.1\r\nHost: site.example\r\n{headers}\r\n"));
    let response = client.read_response();
    assert_eq!(response.status, 200);
    response.text().to_ascii_lowercase()
}

fn has(head: &str, line: &str) -> bool {
    head.lines().any(|found| found == line)
}

#[test]
fn requests_go_on_and_responses_come_back() {
    let origin = mirror();
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    let response = client.request("GET", "/a?b=c", "Accept: text/x\r\n");
    assert_eq!((response.status, response.header("x-served"), response.header("x-gone")), (200, Some("1"), None));
    assert!(response.header("via").unwrap().starts_with("1.1 dapple-"));
    let head = response.text().to_ascii_lowercase();
    assert!(head.starts_with("get /a?b=c http/1.1\r\n") && has(&head, "accept: text/x"), "{head}");
    for (method, body) in [("POST", "some body"), ("PUT", ""), ("DELETE", ""), ("PATCH", "x")] {
        client.send(format!("{method} /x HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(client.read_response().status, 200, "{method}");
        let last = origin.asked().pop().unwrap();
        assert_eq!((last.method.as_str(), last.body.as_slice()), (method, body.as_bytes()));
    }
    assert!(origin.asked().iter().all(|asked| asked.connection == 0), "one connection is enough for all");
    let head = client.request("HEAD", "/", "");
    assert_eq!(head.status, 200);
    assert!(head.header("content-length").is_some_and(|len| len != "0"));
}

#[test]
fn the_host_is_that_of_the_client_or_the_upstream() {
    let origin = mirror();
    let proxy = start(&origin.url(""), &[]);
    assert!(has(&asked(&proxy, ""), "host: site.example"));
    // The target in absolute form decides (RFC 9112, section 3.2.2).
    let mut client = proxy.connect();
    client.send("GET http://other.example/x HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let head = client.read_response().text().to_ascii_lowercase();
    assert!(head.starts_with("get /x http/1.1\r\n") && has(&head, "host: other.example"), "{head}");
    // HTTP/1.0 need not name one.
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert!(has(client.read_response().text(), &format!("host: 127.0.0.1:{}", origin.port)));
    let proxy = start(&origin.url(""), &["--rewrite-host"]);
    let head = asked(&proxy, "");
    assert!(has(&head, &format!("host: 127.0.0.1:{}", origin.port)), "{head}");
    assert!(has(&head, "x-forwarded-host: site.example"), "{head}");
}

#[test]
fn clients_cannot_forge_their_identity() {
    let origin = mirror();
    let spoofed = "X-Forwarded-For: 10.9.9.9\r\nx_forwarded_for: 10.9.9.9\r\nForwarded: for=10.9.9.9\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Real-IP: 10.9.9.9\r\nConnection: x-forwarded-for\r\n";
    let proxy = start(&origin.url(""), &[]);
    let head = asked(&proxy, spoofed);
    assert!(!head.contains("10.9.9.9") && !head.contains("evil") && !head.contains("https"), "{head}");
    for line in [
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: site.example",
        "forwarded: for=127.0.0.1;host=site.example;proto=http",
    ] {
        assert!(has(&head, line), "{line} in {head}");
    }
    let trusting = start(&origin.url(""), &["--trust-forwarded", "127.0.0.0/8"]);
    let head = asked(&trusting, &spoofed.replace("Connection: x-forwarded-for\r\n", ""));
    for line in [
        "x-forwarded-for: 10.9.9.9, 127.0.0.1",
        "x-forwarded-proto: https",
        "x-forwarded-host: evil",
        "forwarded: for=10.9.9.9, for=127.0.0.1;host=site.example;proto=http",
    ] {
        assert!(has(&head, line), "{line} in {head}");
    }
    let silent = start(&origin.url(""), &["--no-forwarded"]);
    let head = asked(&silent, spoofed);
    assert!(!head.contains("forwarded") && !head.contains("127.0.0.1\r"), "{head}");
}

#[test]
fn fields_of_the_connection_are_not_passed_on() {
    let origin = mirror();
    let proxy = start(&origin.url(""), &[]);
    let head = asked(
        &proxy,
        "Connection: keep-alive, x-mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=9\r\nProxy-Connection: keep-alive\r\n\
         TE: gzip\r\nUpgrade: websocket\r\nProxy-Authorization: x\r\nAuthorization: kept\r\n",
    );
    for name in
        ["x-mine:", "keep-alive:", "proxy-connection:", "te:", "upgrade:", "proxy-authorization:", "connection:"]
    {
        assert!(!head.lines().any(|line| line.starts_with(name)), "{name} in {head}");
    }
    assert!(has(&head, "authorization: kept"), "{head}");
    assert!(head.lines().any(|line| line.starts_with("via: 1.1 dapple-")), "{head}");
}

#[test]
fn a_loop_is_detected() {
    let origin = mirror();
    let inner = start(&origin.url(""), &[]);
    let via = asked(&inner, "").lines().find(|line| line.starts_with("via: ")).unwrap().to_owned();
    let response = inner.connect().request("GET", "/", &format!("{via}\r\n"));
    assert_eq!(response.status, 508, "{}", response.text());
}

#[test]
fn requests_for_a_forward_proxy_are_refused() {
    let origin = mirror();
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    client.send(format!("CONNECT 127.0.0.1:{0} HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n\r\n", origin.port));
    assert_eq!(client.read_response().status, 501);
    // Not the proxy's own page: all paths belong to the upstream.
    assert!(proxy.get("/-/status").text().starts_with("GET /-/status "));
    let mut client = proxy.connect();
    client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.read_head().status, 204);
    assert_eq!(origin.count(), 1);
}

#[test]
fn interim_responses_and_trailers_go_through() {
    let origin = Origin::start(|_, stream| {
        let early = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
        let body = "5\r\nhello\r\n0\r\nx-sum: 7\r\nset-cookie: no=1\r\n\r\n";
        stream.write_all([early, head, body].concat().as_bytes()).is_ok()
    });
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n");
    let text = String::from_utf8(client.read_to_end().unwrap()).unwrap();
    assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\n") && text.contains("link: </a.css>"), "{text}");
    assert!(text.contains("\r\n0\r\nx-sum: 7\r\n\r\n") && !text.contains("set-cookie"), "{text}");
    assert!(origin.asked()[0].head.to_ascii_lowercase().contains("te: trailers\r\n"));
    let mut plain = proxy.connect();
    plain.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8(plain.read_to_end().unwrap()).unwrap();
    assert!(!text.contains("x-sum"), "{text}");
}

#[test]
fn a_body_waits_for_100_continue() {
    let origin = Origin::of(|asked| reply("200 OK", "", &String::from_utf8_lossy(&asked.body)));
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head().status, 100);
    client.send("hello");
    assert_eq!(client.read_response().text(), "hello");
    assert!(origin.asked()[0].head.to_ascii_lowercase().contains("expect: 100-continue"));
    // In chunks, also with a method that mostly has no body.
    for method in ["POST", "GET"] {
        client.send(format!(
            "{method} / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        ));
        assert_eq!(client.read_response().text(), "abcde", "{method}");
    }
}
