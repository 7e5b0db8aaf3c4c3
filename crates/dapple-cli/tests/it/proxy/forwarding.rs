//! Requests and responses passed on by the proxy (RFC 9110, section 7.6).

use std::io::Write;
use std::net::TcpListener;

use super::origin::Origin;
use super::{ask, get, number, reply};
use crate::support::{Server, noise};

#[test]
fn fields_of_the_connection_are_not_passed_on() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| {
        let head = "connection: x-hop\r\nx-hop: 1\r\nx-end: 2\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\ndate: Tue, 01 Jan 2019 00:00:00 GMT\r\nvia: 1.0 inner\r\n";
        reply("200 OK", head, "x")
    });
    let headers = "connection: x-mine\r\nx-mine: 1\r\nte: trailers\r\nproxy-authorization: Basic YQ==\r\n\
                   proxy-connection: keep-alive\r\nupgrade: websocket\r\nx-yours: 2\r\nvia: 1.1 outer\r\n";
    let response = get(&proxy, &origin.url("/a/../b?c=d"), headers);
    let asked = &origin.asked()[0];
    assert_eq!(asked.target, "/a/../b?c=d", "the path is unchanged");
    assert_eq!(asked.header("host"), Some(format!("127.0.0.1:{}", origin.port).as_str()), "of the target, not `test`");
    assert_eq!((asked.header("te"), asked.header("connection")), (Some("trailers"), Some("te")), "the proxy's own");
    for gone in ["x-mine", "proxy-authorization", "proxy-connection", "upgrade", "forwarded"] {
        assert_eq!(asked.header(gone), None, "{gone}");
    }
    assert_eq!(asked.header("x-yours"), Some("2"));
    assert!(asked.head.contains("via: 1.1 outer\r\nvia: 1.1 dapple-"), "{}", asked.head);
    for gone in ["x-hop", "keep-alive", "proxy-authenticate"] {
        assert_eq!(response.header(gone), None, "{gone}");
    }
    assert_eq!((response.header("x-end"), response.header("via")), (Some("2"), Some("1.0 inner")));
    assert_eq!(response.header("date"), Some("Tue, 01 Jan 2019 00:00:00 GMT"), "the origin's own");
}

#[test]
fn servers_learn_the_client_with_the_option() {
    let proxy = Server::start_proxy(&["--forwarded"]);
    let origin = Origin::of(|_| reply("200 OK", "", ""));
    get(&proxy, &origin.url("/"), "");
    assert_eq!(origin.asked()[0].header("forwarded"), Some("for=127.0.0.1"));
}

#[test]
fn bodies_of_requests_go_through_whole() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|asked| {
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", asked.body.len()).into_bytes();
        answer.extend(&asked.body);
        answer
    });
    let body = noise(1_000_000, 4);
    let mut client = proxy.connect();
    for expect in ["", "expect: 100-continue\r\n"] {
        client.send(format!(
            "POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{expect}\r\n",
            origin.url("/"),
            body.len()
        ));
        if !expect.is_empty() {
            assert_eq!(client.read_head().status, 100);
        }
        client.send(&body);
        assert!(client.read_response().body == body);
    }
    client.send(format!("PUT {} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", origin.url("/")));
    for piece in body.chunks(70_000) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    assert!(client.read_response().body == body);
    assert_eq!(origin.asked()[2].header("transfer-encoding"), Some("chunked"));
    assert_eq!(origin.asked()[1].header("expect"), Some("100-continue"));
}

#[test]
fn connections_to_origins_are_kept_and_a_stale_one_is_no_error() {
    let proxy = Server::start_proxy(&[]);
    // Every second answer ends its connection without an announcement: so the next request finds
    // the connection closed.
    let origin = Origin::start(|asked, stream| {
        let answer = reply("200 OK", "cache-control: no-store\r\n", "x");
        stream.write_all(&answer).is_ok() && asked.number % 2 == 0
    });
    let mut client = proxy.connect();
    for _ in 0..20 {
        assert_eq!(client.get(&origin.url("/")).text(), "x");
    }
    assert_eq!(origin.count(), 20);
    let connections = origin.asked().last().unwrap().connection + 1;
    assert!((10..=12).contains(&connections), "{connections} connections for 20 requests");
    assert!(number(&proxy, "reused") >= 8);
}

#[test]
fn unsafe_requests_are_not_repeated() {
    let proxy = Server::start_proxy(&[]);
    // The first answer is good; the second request on the connection is read, and the connection
    // ends.
    let origin = Origin::start(|asked, stream| {
        asked.method == "GET" && stream.write_all(&reply("200 OK", "cache-control: no-store\r\n", "x")).is_ok()
    });
    assert_eq!(get(&proxy, &origin.url("/"), "").status, 200);
    assert_eq!(ask(&proxy, "POST", &origin.url("/"), "content-length: 0\r\n").status, 502);
    assert_eq!(origin.count(), 2, "RFC 9110, 9.2.2");
    assert_eq!(get(&proxy, &origin.url("/"), "").status, 200);
    assert_eq!(ask(&proxy, "DELETE", &origin.url("/"), "").status, 502);
    assert_eq!(origin.count(), 5, "once more, because DELETE may be");
}

#[test]
fn a_request_that_comes_back_is_a_loop() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| reply("200 OK", "cache-control: no-store\r\n", ""));
    let via = {
        get(&proxy, &origin.url("/"), "");
        origin.asked()[0].header("via").unwrap().to_owned()
    };
    let response = get(&proxy, &origin.url("/"), &format!("via: {via}\r\n"));
    assert_eq!(response.status, 508);
    assert_eq!(response.header("proxy-status"), Some("dapple; error=proxy_loop_detected"));
}

#[test]
fn max_forwards_decides_which_hop_answers_options_and_trace() {
    // RFC 9110, 7.6.2.
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::of(|_| reply("200 OK", "x-origin: 1\r\n", ""));
    let last = ask(&proxy, "OPTIONS", &origin.url("/"), "max-forwards: 0\r\n");
    assert_eq!((last.header("x-origin"), last.header("allow").is_some()), (None, true));
    let trace = ask(&proxy, "TRACE", &origin.url("/"), "max-forwards: 0\r\ncookie: secret\r\nx-a: b\r\n");
    assert!(trace.text().contains("x-a: b") && !trace.text().contains("secret"), "{}", trace.text());
    assert_eq!(origin.count(), 0);
    ask(&proxy, "OPTIONS", &origin.url("/"), "max-forwards: 7\r\n");
    assert_eq!(origin.asked()[0].header("max-forwards"), Some("6"));
    ask(&proxy, "OPTIONS", &format!("http://127.0.0.1:{}", origin.port), "");
    assert_eq!(origin.asked()[1].target, "*", "RFC 9112, 3.2.4");
}

#[test]
fn unsupported_requests_are_refused_with_a_reason() {
    let proxy = Server::start_proxy(&[]);
    for (method, url, status, text) in [
        ("GET", "/", 400, "curl -x"),
        ("GET", "https://localhost/", 501, "CONNECT"),
        ("GET", "http://nowhere.invalid/", 502, "looked up"),
    ] {
        let response = ask(&proxy, method, url, "");
        assert_eq!(response.status, status, "{method} {url}");
        assert!(response.text().contains(text), "{method} {url}: {}", response.text());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(get(&proxy, &format!("http://127.0.0.1:{port}/"), "").status, 502);
}
