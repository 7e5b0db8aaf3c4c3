//! Slow or silent clients are dropped; those that only take their time are not.

use std::time::{Duration, Instant};

use crate::support::{Client, Server, Site, eventually, noise};

/// Reads until the server ends the connection in any way. The client's own patience exceeds every
/// limit here.
fn ends(client: &mut Client) -> Vec<u8> {
    let start = Instant::now();
    let rest = client.read_to_end().unwrap_or_default();
    assert!(start.elapsed() < Duration::from_secs(15), "the server did not end the connection");
    rest
}

#[test]
fn a_silent_connection_is_closed_silently() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--idle-timeout-s", "2"]);
    let mut silent = server.connect();
    assert_eq!(ends(&mut silent), b"");
    let mut idle = server.connect();
    assert_eq!(idle.get("/").status, 200);
    assert_eq!(ends(&mut idle), b"");
}

#[test]
fn an_unfinished_head_gets_408() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--head-timeout-s", "0.5"]);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHos");
    let response = client.read_response();
    assert_eq!((response.status, response.header("connection")), (408, Some("close")));
    assert!(response.text().contains("</html>"));
    // A byte now and then does not help: the limit is for the whole head.
    let mut client = server.connect();
    let start = Instant::now();
    client.send("GET / HTTP/1.1\r\n");
    while start.elapsed() < Duration::from_secs(15) && client.try_send("X: y\r\n") {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(start.elapsed() < Duration::from_secs(15), "the server did not end the connection");
}

#[test]
fn a_slow_head_does_not_take_time_from_the_next() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--head-timeout-s", "2"]);
    let mut client = server.connect();
    let start = Instant::now();
    // Each part completes the request before it and starts another, so one request is always
    // unfinished.
    client.send("GET / HTTP/1.1\r\n");
    while start.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(200));
        client.send("Host: a\r\n\r\nGET / HTTP/1.1\r\n");
        assert_eq!(client.read_response().status, 200);
    }
}

#[test]
fn a_body_that_stops_is_answered() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--pause-timeout-s", "0.3"]);
    for lines in ["Content-Length: 100\r\n\r\nstart", "Transfer-Encoding: chunked\r\n\r\n5\r\nstart"] {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}"));
        assert_eq!(client.read_response().status, 408);
        ends(&mut client);
    }
}

#[test]
fn a_body_that_trickles_is_answered() {
    let site = Site::with_index();
    let server = Server::start(&site.path, &["--receive-rate-min", "10000", "--rate-grace-s", "0.3"]);
    let mut client = server.connect();
    let start = Instant::now();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    while start.elapsed() < Duration::from_secs(15) && client.try_send("x") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() < Duration::from_secs(15), "the server did not end the connection");
}

#[test]
fn a_client_that_reads_little_or_nothing_is_dropped() {
    let site = Site::new();
    site.write("large.bin", noise(32 << 20, 3));
    for options in [
        &["--pause-timeout-s", "0.5"][..],
        &["--send-rate-min", "100000000", "--rate-grace-s", "0.5"],
        &["--request-timeout-s", "2"],
    ] {
        for cache in ["1", "2000"] {
            let server = Server::start(&site.path, &[options, &["--cache-mb", cache]].concat());
            let mut client = server.connect();
            client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.read_head().status, 200);
            let gone = eventually(Duration::from_secs(15), || {
                let status: serde_json::Value = serde_json::from_slice(&server.get("/-/status").body).unwrap();
                status["connections"]["open"] == 1
            });
            assert!(gone, "{options:?}");
        }
    }
}

#[test]
fn a_client_that_reads_steadily_stays() {
    let site = Site::new();
    let large = noise(8 << 20, 4);
    site.write("large.bin", &large);
    let server =
        Server::start(&site.path, &["--pause-timeout-s", "5", "--send-rate-min", "1000", "--rate-grace-s", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    let (mut body, mut buf) = (Vec::new(), vec![0; 256 << 10]);
    while body.len() < large.len() {
        let count = client.read(&mut buf).unwrap();
        assert!(count > 0, "{} of {} bytes", body.len(), large.len());
        body.extend_from_slice(&buf[..count]);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(body == large);
}
