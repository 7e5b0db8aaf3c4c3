//! Clients that try to smuggle requests past the proxy, and upstreams that lie.

use std::io::Write;

use super::start;
use crate::proxy::origin::Origin;
use crate::proxy::reply;

#[test]
fn an_ambiguous_request_is_not_passed_on() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let proxy = start(&origin.url(""), &[]);
    for head in [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\u{b}chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello",
        "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A\0: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x@y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n",
    ] {
        let mut client = proxy.connect();
        client.send(head);
        let status = client.read_head().status;
        assert!((400..500).contains(&status) || status == 501, "{head:?}: {status}");
    }
    let asked = origin.asked();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn a_client_of_another_version_gets_an_error() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    client.send("GET / HTTP/9.9\r\nHost: x\r\n\r\n");
    let reply = client.read_response();
    assert_eq!(reply.status, 505);
    assert!(reply.text().contains("version"), "{}", reply.text());
    assert_eq!(origin.count(), 0);
}

#[test]
fn malformed_chunks_never_look_complete() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let proxy = start(&origin.url(""), &[]);
    for body in [
        "5\r\nhelloX\r\n0\r\n\r\n",
        "-1\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
    ] {
        let mut client = proxy.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let status = client.read_head().status;
        assert_eq!(status, 400, "{body:?}");
    }
    assert_eq!(origin.count(), 0, "none was complete: {:?}", origin.asked());
}

#[test]
fn bytes_after_a_request_are_the_next_one_or_nothing() {
    let origin = Origin::of(|asked| reply("200 OK", "", &format!("{} {}", asked.target, asked.body.len())));
    let proxy = start(&origin.url(""), &[]);
    let mut client = proxy.connect();
    let inner = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    client.send(format!("GET /one HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{inner}", inner.len()));
    assert_eq!(client.read_response().text(), format!("/one {}", inner.len()));
    client.send("GET /two HTTP/1.1\r\nHost: x\r\n\r\nGET /three HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((client.read_response().text(), client.read_response().text()), ("/two 0", "/three 0"));
    assert_eq!(origin.count(), 3);
}

#[test]
fn an_upstream_that_lies_about_its_response_is_not_believed() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/2.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "garbage\r\n\r\n",
        "",
    ] {
        let origin = Origin::start(move |_, stream| stream.write_all(head.as_bytes()).is_err());
        let proxy = start(&origin.url(""), &[]);
        let response = proxy.get("/");
        assert_eq!(response.status, 502, "{head:?}: {}", response.text());
    }
}

#[test]
fn a_response_shorter_than_it_says_ends_early_for_the_client_too() {
    for head in ["content-length: 10\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let origin =
            Origin::start(move |_, stream| stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).is_err());
        let proxy = start(&origin.url(""), &[]);
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
        let rest = client.read_to_end().unwrap_or_default();
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 11, "{head}: {}", rest.escape_ascii());
        // Also in HTTP/1.0: the end is not taken for that of the body.
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
        if head.starts_with("transfer") {
            assert!(client.read_to_end().is_err(), "the connection is reset");
        }
    }
}

#[test]
fn bytes_after_a_response_are_never_the_next_one() {
    let origin = Origin::start(|asked, stream| {
        let mut answer = reply("200 OK", "", &asked.target);
        if asked.target == "/evil" {
            answer.extend(reply("200 OK", "", "smuggled"));
        }
        stream.write_all(&answer).is_ok()
    });
    let proxy = start(&origin.url(""), &["--fail-after", "1000"]);
    for _ in 0..50 {
        assert_eq!(proxy.get("/evil").text(), "/evil");
        assert_eq!(proxy.get("/good").text(), "/good");
    }
}
