//! Interim responses of an origin (RFC 9110, section 15.2).

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::origin::Origin;
use super::{get, reply};
use crate::support::Server;

const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";

#[test]
fn interim_responses_arrive_before_the_answer() {
    let (seen, is_seen) = channel::<()>();
    let is_seen = Mutex::new(is_seen);
    let origin = Origin::start(move |asked, stream| {
        stream.write_all(HINT).unwrap();
        is_seen.lock().unwrap().recv().unwrap();
        stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").unwrap();
        let text = if asked.method == "HEAD" { "" } else { "done" };
        stream.write_all(&reply("200 OK", "cache-control: no-store\r\n", text)).is_ok()
    });
    let proxy = Server::start_proxy(&[]);
    let mut client = proxy.connect();
    // Through the cache, around it, and with a body.
    for (method, headers, body) in [
        ("GET", "", ""),
        ("GET", "range: bytes=0-1\r\n", ""),
        ("HEAD", "", ""),
        ("POST", "content-length: 4\r\n", "body"),
        ("POST", "content-length: 4\r\nexpect: 100-continue\r\n", "body"),
        ("POST", "transfer-encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n"),
    ] {
        client.send(format!("{method} {} HTTP/1.1\r\nhost: x\r\n{headers}\r\n", origin.url("/")));
        if headers.contains("expect") {
            assert_eq!(client.read_head().status, 100, "{method} {headers}");
        }
        client.send(body);
        let hint = client.read_head();
        assert_eq!((hint.status, hint.header("link")), (103, Some("</a.css>; rel=preload")), "{method} {headers}");
        assert!(hint.header("via").is_some_and(|via| via.starts_with("1.1 dapple-")));
        for gone in ["connection", "x-hop", "content-length", "transfer-encoding"] {
            assert_eq!(hint.header(gone), None, "{gone}");
        }
        seen.send(()).unwrap();
        assert_eq!(client.read_head().status, 102, "{method} {headers}");
        let answer = if method == "HEAD" { client.read_head() } else { client.read_response() };
        assert_eq!(answer.status, 200, "{method} {headers}");
        assert_eq!(answer.text(), if method == "HEAD" { "" } else { "done" });
    }
}

#[test]
fn clients_of_http_1_0_get_none() {
    let origin = Origin::of(|_| [HINT, &reply("200 OK", "cache-control: no-store\r\n", "done")].concat());
    let proxy = Server::start_proxy(&[]);
    for (method, headers) in [("GET", ""), ("GET", "range: bytes=0-1\r\n"), ("POST", "content-length: 0\r\n")] {
        let mut client = proxy.connect();
        client.send(format!("{method} {} HTTP/1.0\r\n{headers}\r\n", origin.url("/")));
        assert_eq!(client.read_response().text(), "done", "{method} {headers}");
    }
}

#[test]
fn a_hit_has_none_and_neither_has_a_joining_request() {
    let origin = Origin::of(|_| [HINT, &reply("200 OK", "cache-control: max-age=600\r\n", "done")].concat());
    let proxy = Server::start_proxy(&[]);
    let mut client = proxy.connect();
    client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
    assert_eq!((client.read_head().status, client.read_response().status), (103, 200));
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "done");
    assert_eq!(origin.count(), 1);
}

#[test]
fn their_number_and_size_are_bounded() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| {
        let large = format!("HTTP/1.1 103 Early Hints\r\nx-large: {}\r\n\r\n", "x".repeat(10_000));
        [large.as_bytes(), &HINT.repeat(100), &reply("200 OK", "cache-control: no-store\r\n", "done")].concat()
    });
    let mut client = proxy.connect();
    client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
    let mut hints = 0;
    loop {
        let head = client.read_head();
        if head.status == 200 {
            break;
        }
        assert_eq!((head.status, head.header("x-large")), (103, None));
        hints += 1;
    }
    assert_eq!(hints, 7, "of eight the first was too large");
    let mut rest = [0; 4];
    client.read_all(&mut rest);
    assert_eq!(&rest, b"done");
}

#[test]
fn an_origin_that_sends_only_interim_responses_is_a_timeout() {
    let proxy = Server::start_proxy(&["--response-timeout-s", "1"]);
    let origin = Origin::start(|_, stream| {
        while stream.write_all(HINT).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        false
    });
    for headers in ["", "range: bytes=0-1\r\n"] {
        let mut client = proxy.connect();
        client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n{headers}\r\n", origin.url("/")));
        for _ in 0..8 {
            assert_eq!(client.read_head().status, 103);
        }
        assert_eq!(client.read_response().status, 504);
    }
}

/// `interim-102`, `interim-103`, `interim-not-cached` and `interim-no-header-reuse` of
/// github.com/http-tests/cache-tests.
#[test]
fn the_final_response_is_kept_and_nothing_else() {
    for interim in [HINT, b"HTTP/1.1 102 Processing\r\n\r\n"] {
        let origin =
            Origin::of(move |_| [interim, &reply("200 OK", "cache-control: max-age=600\r\n", "done")].concat());
        let proxy = Server::start_proxy(&[]);
        let mut client = proxy.connect();
        client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", origin.url("/")));
        assert!(matches!(client.read_head().status, 102 | 103));
        assert_eq!(client.read_response().text(), "done");
        let hit = client.request("GET", &origin.url("/"), "");
        assert_eq!((hit.status, hit.text(), hit.header("link")), (200, "done", None));
        assert_eq!(origin.count(), 1);
    }
}
