//! Origins that lie, stall or die.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::origin::Origin;
use super::{get, reply};
use crate::support::Server;

#[test]
fn a_response_that_can_be_read_in_two_ways_is_refused() {
    let proxy = Server::start_proxy(&[]);
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/2.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "garbage\r\n\r\n",
        "",
    ] {
        let origin = Origin::start(move |_, stream| stream.write_all(head.as_bytes()).is_err());
        let response = get(&proxy, &origin.url("/"), "");
        assert_eq!(response.status, 502, "{head:?}: {}", response.text());
    }
}

#[test]
fn bytes_after_a_response_are_never_the_next_one() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::start(|asked, stream| {
        let mut answer = reply("200 OK", "cache-control: no-store\r\n", &asked.target);
        if asked.target == "/evil" {
            answer.extend(reply("200 OK", "cache-control: max-age=60\r\n", "smuggled"));
        }
        stream.write_all(&answer).is_ok()
    });
    for _ in 0..50 {
        assert_eq!(get(&proxy, &origin.url("/evil"), "").text(), "/evil");
        assert_eq!(get(&proxy, &origin.url("/good"), "").text(), "/good");
    }
}

#[test]
fn a_response_that_ends_early_is_cut_short_visibly_and_not_kept() {
    let proxy = Server::start_proxy(&[]);
    for (framing, is_first_sent) in
        [("content-length: 10\r\n", "hello"), ("transfer-encoding: chunked\r\n", "5\r\nhello\r\n")]
    {
        let origin = Origin::start(move |asked, stream| {
            if asked.number > 0 {
                return stream.write_all(&reply("200 OK", "", "whole")).is_ok();
            }
            let head = format!("HTTP/1.1 200 OK\r\n{framing}cache-control: max-age=60\r\n\r\n{is_first_sent}");
            stream.write_all(head.as_bytes()).is_err()
        });
        let url = origin.url("/");
        let mut client = proxy.connect();
        client.send(format!("GET {url} HTTP/1.1\r\nhost: x\r\n\r\n"));
        let head = client.read_head();
        let rest = client.read_to_end().unwrap_or_default();
        assert_eq!(head.status, 200);
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 11, "{framing}: {:?}", rest.escape_ascii().to_string());
        assert_eq!(get(&proxy, &url, "").text(), "whole", "{framing}");
    }
}

#[test]
fn a_silent_origin_is_a_timeout() {
    let proxy = Server::start_proxy(&["--response-timeout-s", "1"]);
    let silent = Origin::start(|asked, stream| {
        if asked.target == "/body" {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").unwrap();
        }
        thread::sleep(Duration::from_secs(30));
        false
    });
    let begin = Instant::now();
    assert_eq!(get(&proxy, &silent.url("/head"), "").status, 504);
    let mut client = proxy.connect();
    client.send(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", silent.url("/body")));
    assert_eq!(client.read_head().header("content-length"), Some("10"));
    assert!(client.read_to_end().unwrap_or_default().len() < 10);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_endless_head_is_refused() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::start(|_, stream| {
        let mut is_well = stream.write_all(b"HTTP/1.1 200 OK\r\n").is_ok();
        for index in 0..100_000 {
            is_well = is_well && stream.write_all(format!("x-{index}: {}\r\n", "y".repeat(100)).as_bytes()).is_ok();
        }
        false
    });
    assert_eq!(get(&proxy, &origin.url("/"), "").status, 502);
}

#[test]
fn the_proxy_ends_within_its_bound_whatever_is_open() {
    let origin = Origin::of(|_| reply("200 OK", "cache-control: max-age=60\r\n", "x"));
    let mut proxy = Server::start_proxy(&["--connect-port", &origin.port.to_string()]);
    let mut idle = proxy.connect();
    idle.get(&origin.url("/"));
    let mut tunnel = super::tunnels::connect(&proxy, origin.port);
    assert_eq!(tunnel.get("/").text(), "x");
    proxy.signal(rustix::process::Signal::TERM);
    let status = proxy.wait(Duration::from_secs(20)).expect("it ends");
    assert_eq!(status.code(), Some(0));
}
