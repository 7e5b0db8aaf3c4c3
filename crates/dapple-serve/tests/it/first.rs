//! First requests on new connections, while most are refused, so that few get as far as hyper.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Response, StatusCode};

use crate::support::{ask, connect, end, eventually, outside, reply, rest};

/// Teaches the server the cost of these requests, so that it considers the next ones closely.
/// Returns how many it sent: on a busy machine some take long, and the server may refuse one.
fn teach(addr: SocketAddr) -> u64 {
    let mut client = connect(addr);
    let (mut asked, mut taught) = (0, 0);
    eventually("it has learned", || {
        asked += 1;
        taught += u64::from(ask(&mut client, "/spin?20000").1 == "spun");
        taught == 5
    });
    asked
}

/// Opens `count` connections that each have sent one request.
fn crowd(addr: SocketAddr, request: &str, count: usize) -> Vec<TcpStream> {
    let mut clients: Vec<_> = (0..count).map(|_| connect(addr)).collect();
    for client in &mut clients {
        client.write_all(request.as_bytes()).unwrap();
    }
    clients
}

const CLOSE: &str = "GET /spin?20000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn a_refused_client_gets_the_whole_refusal_and_then_the_end() {
    let described = Arc::new(AtomicU64::new(0));
    let count = described.clone();
    let (runtime, server) = outside!(server => server.describe(move |_, _, offer| {
        count.fetch_add(1, Ordering::Relaxed);
        offer
    }));
    let asked = 100 + teach(server.addr);
    let mut refused = 0;
    for mut client in crowd(server.addr, CLOSE, 100) {
        let mut all = String::new();
        client.read_to_string(&mut all).expect("it ends without a reset");
        let (head, body) = all.split_once("\r\n\r\n").expect("there is a head");
        let len: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        assert_eq!(body.len(), len, "{all}");
        assert!(head.contains("\r\nconnection: close") && head.contains("\r\ndate: "), "{head}");
        if head.starts_with("HTTP/1.1 503 Service Unavailable\r\n") {
            refused += 1;
            assert!(head.contains("\r\nretry-after: ") && head.contains("\r\ncontent-type: text/plain"), "{head}");
            assert!(body.starts_with("refused: ") && body.ends_with('\n'), "{body}");
        } else {
            assert!(head.starts_with("HTTP/1.1 200 ") && body == "spun", "{all}");
        }
    }
    assert!(refused > 0, "{refused} were refused");
    assert_eq!(
        (server.handle.requests(), described.load(Ordering::Relaxed)),
        (asked, asked),
        "admission control was asked about each once"
    );
    eventually("all are gone", || server.handle.connections() == 0);
    end(runtime, server);
}

#[test]
fn requests_sent_along_with_the_first_are_answered_after_it() {
    let (runtime, server) = outside!();
    teach(server.addr);
    let both = "GET /spin?20000 HTTP/1.1\r\nhost: a\r\n\r\nGET /health HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut refused = 0;
    for mut client in crowd(server.addr, both, 60) {
        refused += usize::from(reply(&mut client).0.starts_with("HTTP/1.1 503 "));
        let (head, body) = reply(&mut client);
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body == "hello" || head.starts_with("HTTP/1.1 503 "),
            "{head}{body}"
        );
        eventually("the connection goes on", || ask(&mut client, "/health").1 == "hello");
    }
    assert!(refused > 0, "{refused} were refused");
    end(runtime, server);
}

#[test]
fn a_program_can_set_its_own_reply_there_too() {
    let (runtime, server) = outside!(server => server.on_refusal(|refused| {
        let mut response = Response::new(format!("mine: {}", refused.reason));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response
    }));
    let asked = 60 + teach(server.addr);
    let replies: Vec<String> = crowd(server.addr, CLOSE, 60).iter_mut().map(rest).collect();
    let own = replies.iter().filter(|reply| reply.starts_with("HTTP/1.1 429 ") && reply.contains("mine: ")).count();
    let served = replies.iter().filter(|reply| reply.ends_with("spun")).count();
    assert!(own > 0 && own + served == 60, "{own} and {served}: {replies:?}");
    assert_eq!(server.handle.requests(), asked);
    end(runtime, server);
}

#[test]
fn requests_with_bodies_and_other_protocols_are_handled_too() {
    let (runtime, server) = outside!();
    teach(server.addr);
    let crowd = crowd(server.addr, CLOSE, 40);
    let mut by_http2 = connect(server.addr);
    by_http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut with_body = connect(server.addr);
    with_body.write_all(b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody").unwrap();
    let mut malformed = connect(server.addr);
    malformed.write_all(b"GET / HTTP/1.1\r\nhost : a\r\n\r\n").unwrap();
    let mut frame = [0; 9];
    by_http2.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "its settings come first");
    let (head, body) = reply(&mut with_body);
    assert!(head.starts_with("HTTP/1.1 503 ") || body == "4 bytes", "{head}{body}");
    assert!(rest(&mut malformed).starts_with("HTTP/1.1 400 "));
    drop((crowd, by_http2));
    end(runtime, server);
}

#[test]
fn a_client_without_a_request_meets_the_limit() {
    let (runtime, server) = outside!(server => server.head_timeout(Duration::from_secs(3)));
    teach(server.addr);
    let mut silent = connect(server.addr);
    let mut slow = connect(server.addr);
    slow.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    let mut gone = connect(server.addr);
    gone.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut silent), "");
    assert!(rest(&mut slow).starts_with("HTTP/1.1 408 "));
    assert_eq!(rest(&mut gone), "");
    eventually("all are gone", || server.handle.connections() == 0);
    end(runtime, server);
}

#[test]
fn a_server_that_ends_does_not_wait_for_a_first_request() {
    let (runtime, server) = outside!();
    teach(server.addr);
    let mut silent = connect(server.addr);
    eventually("it was accepted", || server.handle.connections() == 1);
    server.handle.stop();
    assert_eq!(rest(&mut silent), "");
    end(runtime, server);
}
