//! The stages of a server's end.

use std::time::Duration;

use dapple::time::{Instant, sleep};
use soak::{Frames, GOAWAY, HEADERS, Wire};

use crate::support::{Client, LIMIT, connect, eventually, outside, service, start};

const SECOND: Duration = Duration::from_secs(1);

#[dapple::test]
async fn a_server_without_clients_ends_at_once() {
    let server = start!();
    server.handle.stop();
    server.task.await.unwrap().unwrap();
    assert!(dapple::net::TcpStream::connect(server.addr).await.is_err(), "nobody listens");
}

#[dapple::test]
async fn the_next_reply_is_the_last_and_idle_connections_are_closed() {
    let server = start!(server => server.last_reply_timeout(SECOND));
    let (talking, resting) = (Client::connect(server.addr).await, Client::connect(server.addr).await);
    for client in [&talking, &resting] {
        let (head, _) = client.ask("/hello").await;
        assert!(!head.contains("connection: close"), "{head}");
    }
    let begin = Instant::now();
    server.handle.stop();
    sleep(SECOND / 2).await;
    let (head, body) = talking.ask("/hello").await;
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!((body.as_str(), talking.rest().await.as_str()), ("hello", ""));
    assert_eq!(resting.rest().await, "");
    assert!(begin.elapsed() >= SECOND, "it had its time");
    server.task.await.unwrap().unwrap();
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    assert_eq!(server.handle.cut(), 0);
}

#[dapple::test]
async fn a_request_being_answered_is_finished() {
    let server = start!(server => server.drain(30 * SECOND));
    let client = Client::connect(server.addr).await;
    client.say("GET /sleep?20000 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    while server.handle.requests() == 0 {
        sleep(SECOND / 1_000).await;
    }
    let begin = Instant::now();
    server.handle.stop();
    let (head, body) = client.hear().await;
    assert_eq!(body, "awake");
    assert!(head.contains("connection: close"), "{head}");
    server.task.await.unwrap().unwrap();
    assert!(begin.elapsed() < 25 * SECOND);
    assert_eq!(server.handle.cut(), 0);
}

#[dapple::test]
async fn a_request_that_takes_too_long_is_cut() {
    let server = start!(server => server.drain(30 * SECOND));
    let client = Client::connect(server.addr).await;
    client.say("GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await;
    while server.handle.requests() == 0 {
        sleep(SECOND / 1_000).await;
    }
    let begin = Instant::now();
    server.handle.stop();
    server.task.await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took >= 30 * SECOND && took < 32 * SECOND, "{took:?}");
    assert_eq!((client.rest().await.as_str(), server.handle.cut()), ("", 1));
}

#[dapple::test]
async fn a_server_ends_when_its_future_resolves() {
    let (tx, rx) = dapple::sync::oneshot::channel::<()>();
    let server = start!(server => server.with_graceful_shutdown(async move { drop(rx.await) }));
    let client = Client::connect(server.addr).await;
    assert_eq!(client.ask("/hello").await.1, "hello");
    tx.send(()).unwrap();
    server.task.await.unwrap().unwrap();
    assert_eq!(client.rest().await, "");
}

#[dapple::test]
async fn a_dropped_server_ends_in_the_background() {
    let server = start!();
    let client = Client::connect(server.addr).await;
    client.say("GET /sleep?2000 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    while server.handle.requests() == 0 {
        sleep(SECOND / 1_000).await;
    }
    server.task.abort();
    assert_eq!(client.hear().await.1, "awake", "a started request is finished");
    while dapple::net::TcpStream::connect(server.addr).await.is_ok() {
        sleep(SECOND / 100).await;
    }
}

#[test]
fn a_server_ends_with_its_runtime() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    assert_eq!(crate::support::ask(&mut client, "/hello").1, "hello");
    let report = runtime.shutdown(LIMIT);
    assert_eq!(report.tasks_dropped, 0);
    assert_eq!(crate::support::rest(&mut client), "");
}

/// In HTTP/2 the peer gets GOAWAY at once, and open streams are finished.
#[test]
fn http2_sends_goaway_first() {
    let (runtime, server) = outside!(server => server.last_reply_timeout(600 * SECOND));
    let mut peer = Frames::begin(Wire::plain(server.addr.port()).unwrap(), 65_535).unwrap();
    peer.get(1, "/sleep?300", &[(":authority", "a")]).unwrap();
    eventually("it is asked", || server.handle.requests() == 1);
    server.handle.stop();
    assert!(peer.until(GOAWAY).unwrap().is_some(), "it is told");
    assert!(peer.until(HEADERS).unwrap().is_some(), "and gets its reply");
    while peer.receive().unwrap().is_some() {}
    runtime.block_on(server.task).unwrap().unwrap();
}

#[dapple::test]
async fn clients_that_are_connected_already_are_served() {
    let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // In the kernel's backlog, because no task accepts yet.
    let client = Client::connect(addr).await;
    client.say(&crate::support::get("/hello")).await;
    let server = dapple::serve(listener, service()).with_graceful_shutdown(std::future::ready(()));
    let task = dapple::spawn(async move { server.await });
    let (head, body) = client.hear().await;
    assert_eq!(body, "hello");
    assert!(head.contains("connection: close"), "{head}");
    task.await.unwrap().unwrap();
}

/// A task that upgraded its connection, and never reads or writes.
#[dapple::test]
async fn an_upgraded_connection_is_cut_although_its_task_does_nothing() {
    let server = start!(server => server.drain(SECOND));
    let client = Client::connect(server.addr).await;
    client.say("GET /hold HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n").await;
    assert!(client.hear().await.0.starts_with("HTTP/1.1 101 "));
    server.handle.stop();
    server.task.await.unwrap().unwrap();
    assert_eq!(client.rest().await, "", "it is closed");
    assert_eq!((server.handle.connections(), server.handle.cut()), (0, 1));
}
