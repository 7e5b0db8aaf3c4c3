//! Slow clients. The clock of these tests stands still, so that no test really waits.

use std::time::Duration;

use dapple::time::{Instant, sleep};

use crate::support::{Client, start};

const SECOND: Duration = Duration::from_secs(1);

/// Asserts that this took `expected`, up to the ticks of timers and steps of a connection.
#[track_caller]
fn assert_took(begin: Instant, expected: Duration) {
    let took = begin.elapsed();
    assert!(took >= expected && took < expected + SECOND / 2, "{took:?} and not {expected:?}");
}

#[dapple::test]
async fn a_head_that_trickles_meets_its_limit() {
    let server = start!(server => server.head_timeout(10 * SECOND));
    let begin = Instant::now();
    let client = Client::connect(server.addr).await;
    client.say("GET /hello HTTP/1.1\r\n").await;
    for _ in 0..9 {
        sleep(SECOND).await;
        client.say("x-more: x\r\n").await;
    }
    let reply = client.rest().await;
    assert!(reply.starts_with("HTTP/1.1 408 ") && reply.contains("connection: close"), "{reply}");
    assert_took(begin, 10 * SECOND);
    assert_eq!(server.handle.requests(), 0);
}

#[dapple::test]
async fn a_silent_client_is_closed_silently() {
    let server = start!(server => server.head_timeout(10 * SECOND));
    let begin = Instant::now();
    let client = Client::connect(server.addr).await;
    assert_eq!(client.rest().await, "");
    assert_took(begin, 10 * SECOND);
}

#[dapple::test]
async fn a_second_heads_limit_starts_with_its_first_byte() {
    let server = start!(server => server.head_timeout(10 * SECOND).idle_timeout(60 * SECOND));
    let client = Client::connect(server.addr).await;
    assert_eq!(client.ask("/hello").await.1, "hello");
    sleep(50 * SECOND).await;
    let begin = Instant::now();
    client.say("GET").await;
    assert!(client.rest().await.starts_with("HTTP/1.1 408 "));
    assert_took(begin, 10 * SECOND);
}

#[dapple::test]
async fn idle_connections_are_closed() {
    let server = start!(server => server.idle_timeout(60 * SECOND));
    let client = Client::connect(server.addr).await;
    assert_eq!(client.ask("/hello").await.1, "hello");
    sleep(59 * SECOND).await;
    assert_eq!(client.ask("/sleep?100000").await.1, "awake", "while a request is answered, its connection is not idle");
    let begin = Instant::now();
    assert_eq!(client.rest().await, "");
    assert_took(begin, 60 * SECOND);
}

#[dapple::test]
async fn a_body_that_pauses_for_too_long_ends() {
    let server = start!(server => server.body_timeout(5 * SECOND).receive_rate_min(100));
    let client = Client::connect(server.addr).await;
    client.say("POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 10000\r\n\r\n").await;
    // Just fast enough, for longer than the limit.
    for _ in 0..20 {
        sleep(SECOND).await;
        client.say(&"x".repeat(100)).await;
    }
    // Then a byte at a time, which is too slow.
    let begin = Instant::now();
    for _ in 0..4 {
        sleep(SECOND).await;
        client.say("x").await;
    }
    let (head, body) = client.hear().await;
    assert!(head.starts_with("HTTP/1.1 408 ") && head.contains("connection: close"), "{head}");
    assert_eq!(body, "The request's body did not arrive in time.\n");
    assert!(begin.elapsed() < 6 * SECOND, "{:?}", begin.elapsed());
    assert_eq!(client.rest().await, "");
}

#[dapple::test]
async fn a_handler_that_reads_late_is_not_the_clients_fault() {
    let server = start!(server => server.body_timeout(5 * SECOND));
    let client = Client::connect(server.addr).await;
    client.say("POST /late?60000 HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello").await;
    assert_eq!(client.hear().await.1, "5 bytes after 60000 ms");
}

#[dapple::test]
async fn a_dialogue_may_pause() {
    let server = start!(server => server.body_timeout(5 * SECOND).body_max_bytes(10));
    let client = Client::connect(server.addr).await;
    client.say("POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let mut buf = [0; 1024];
    for round in 0..10 {
        client.say("5\r\nhello\r\n").await;
        let mut heard = String::new();
        while !heard.contains("5\r\nhello\r\n") {
            let len = client.0.read(&mut buf).await.unwrap();
            assert!(len > 0, "round {round}: it ended after {heard:?}");
            heard += std::str::from_utf8(&buf[..len]).unwrap();
        }
        sleep(60 * SECOND).await;
    }
}

#[dapple::test]
async fn without_a_limit_a_body_may_take_its_time() {
    let server = start!(server => server.body_timeout(None));
    let client = Client::connect(server.addr).await;
    client.say("POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello").await;
    sleep(3_600 * SECOND).await;
    client.say("hello").await;
    assert_eq!(client.hear().await.1, "10 bytes");
}

/// Uses the real clock: while bytes wait in a socket, the other clock does not jump.
#[dapple::test(clock = "real")]
async fn a_client_that_takes_nothing_of_a_reply_is_cut() {
    let server = start!(server => server.pause_timeout(SECOND / 4));
    let client = Client::connect(server.addr).await;
    client.say("GET /zeros HTTP/1.1\r\nhost: a\r\n\r\n").await;
    while server.handle.requests() == 0 || server.handle.connections() > 0 {
        sleep(SECOND / 100).await;
    }
}
