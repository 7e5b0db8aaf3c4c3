//! Fields after a body (RFC 9110, section 6.5; RFC 9112, section 7.1.2).

use super::origin::Origin;
use super::{get, number};
use crate::support::{Server, dapple};

/// An answer in chunks, followed by fields of which some may be passed on, and some not.
fn answer(head: &str) -> Vec<u8> {
    let trailers = "x-sum: 7\r\nset-cookie: a=b\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\nx-sum: 8\r\n";
    let trailer = "trailer: x-sum, set-cookie\r\n";
    format!("HTTP/1.1 200 OK\r\n{trailer}{head}transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n{trailers}\r\n")
        .into()
}

/// The `Trailer` field of the head, and everything after the head, as received.
fn ask(proxy: &Server, version: &str, url: &str, headers: &str) -> (Option<String>, String) {
    let mut client = proxy.connect();
    client.send(format!("GET {url} HTTP/{version}\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"));
    let head = client.read_head();
    assert_eq!(head.status, 200);
    let rest = String::from_utf8(client.read_to_end().unwrap()).unwrap();
    (head.header("trailer").map(str::to_owned), rest)
}

#[test]
fn trailers_go_to_clients_that_want_them() {
    let origin = Origin::of(|_| answer("cache-control: no-store\r\n"));
    let proxy = Server::start_proxy(&[]);
    let plain = (None, "4\r\nbody\r\n0\r\n\r\n".to_owned());
    let with = (Some("x-sum, set-cookie".to_owned()), "4\r\nbody\r\n0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n".to_owned());
    // Through the cache, and around it.
    for headers in ["", "range: bytes=0-9\r\n"] {
        let ask = |version, te: &str| ask(&proxy, version, &origin.url("/"), &format!("{headers}{te}"));
        assert_eq!(ask("1.1", ""), plain, "{headers}");
        assert_eq!(ask("1.1", "te: gzip, xtrailers\r\n"), plain, "{headers}");
        assert_eq!(ask("1.1", "te: trailers\r\n"), with, "{headers}");
        assert_eq!(ask("1.1", "te: gzip;q=0.5, Trailers\r\n"), with, "{headers}");
        assert_eq!(ask("1.0", "te: trailers\r\n"), (None, "body".to_owned()), "{headers}");
    }
    let asked: Vec<_> = origin.asked().iter().map(|asked| asked.header("te").map(str::to_owned)).collect();
    assert_eq!(asked[..4], [None, None, Some("trailers".to_owned()), Some("trailers".to_owned())]);
    assert!(number(&proxy, "reused") >= 8, "the connection goes on after trailers");
}

#[test]
fn cached_responses_have_no_trailers() {
    let origin = Origin::of(|_| answer("cache-control: max-age=600\r\n"));
    let proxy = Server::start_proxy(&[]);
    let (_, first) = ask(&proxy, "1.1", &origin.url("/"), "te: trailers\r\n");
    assert!(first.ends_with("0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n"), "{first}");
    let hit = get(&proxy, &origin.url("/"), "te: trailers\r\n");
    assert_eq!((hit.text(), hit.header("content-length"), hit.header("trailer")), ("body", Some("4"), None));
    assert_eq!(origin.count(), 1);
}

#[test]
fn too_many_trailers_end_the_body_visibly() {
    let proxy = Server::start_proxy(&[]);
    for trailers in ["no field\r\n\r\n".to_owned(), "x: y\r\n".repeat(100_000)] {
        let origin = Origin::of(move |_| {
            let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
            format!("{head}4\r\nbody\r\n0\r\n{trailers}").into()
        });
        let mut client = proxy.connect();
        client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\nte: trailers\r\n\r\n", origin.url("/")));
        if client.read_head().status == 200 {
            let rest = client.read_to_end().unwrap_or_default();
            assert!(!rest.ends_with(b"\r\n\r\n"), "{}", rest.escape_ascii());
        }
    }
}

/// A request's trailers are passed on too, by either proxy, except fields that must not be
/// trailers.
#[test]
fn trailers_of_requests_arrive() {
    let origin = Origin::of(|_| answer("cache-control: no-store\r\n"));
    let forward = Server::start_proxy(&[]);
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--to", &origin.url("")]);
    let reverse = Server::spawn(command);
    for (proxy, target) in [(&forward, origin.url("/")), (&reverse, "/".to_owned())] {
        let mut client = proxy.connect();
        for trailers in ["X-Sum: 7\r\nhost: other\r\nx-more:a \r\ncontent-length: 99\r\nx-unnamed: b\r\n", ""] {
            client.send(format!(
                "POST {target} HTTP/1.1\r\nhost: x\r\ntrailer: x-sum, x-more, host\r\ntransfer-encoding: chunked\r\n\r\n\
                 4\r\nbody\r\n0\r\n{trailers}\r\n"
            ));
            assert_eq!(client.read_response().status, 200);
            let asked = origin.asked().pop().unwrap();
            assert_eq!(asked.body, b"body");
            assert_ne!(asked.header("host"), Some("other"));
            let mut seen = asked.trailers.clone();
            seen.sort();
            // Over HTTP/1.1 only the trailers announced in the head are passed on.
            let expected: &[&str] = if trailers.is_empty() { &[] } else { &["x-more: a", "x-sum: 7"] };
            assert_eq!(seen, expected);
        }
    }
}
