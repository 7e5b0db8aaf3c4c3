//! Many requests for the same response at the same time, answered once.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::origin::Origin;
use super::{get, note, number};
use crate::support::{Client, Server, noise};

/// An origin that sends the head and half of the body, and the rest on a signal.
fn halting(head: &'static str, body: &[u8]) -> (Origin, Sender<()>) {
    let (go, wait) = channel();
    let (wait, body) = (Mutex::new(wait), body.to_vec());
    let origin = Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{head}\r\n", body.len());
        let (one, other) = body.split_at(body.len() / 2);
        stream.write_all(head.as_bytes()).is_ok()
            && stream.write_all(one).is_ok()
            && wait.lock().unwrap().recv().is_ok()
            && stream.write_all(other).is_ok()
    });
    (origin, go)
}

const FRESH: &str = "cache-control: max-age=60\r\n";

/// Sends a request and reads only the head of its answer.
fn begin(proxy: &Server, url: &str) -> Client {
    let mut client = proxy.connect();
    client.send(format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n"));
    client
}

#[test]
fn simultaneous_misses_ask_once_and_all_read_as_it_arrives() {
    let proxy = Server::start_proxy(&[]);
    let body = noise(100_000, 1);
    let (origin, go) = halting(FRESH, &body);
    let url = origin.url("/x");
    let mut clients: Vec<Client> = (0..8).map(|_| begin(&proxy, &url)).collect();
    for client in &mut clients {
        // The head arrives before the rest is sent: no client waits for the whole response.
        let head = client.read_head();
        assert_eq!(head.header("content-length"), Some("100000"));
        let mut half = vec![0; body.len() / 2];
        client.read_all(&mut half);
        assert_eq!(half, body[..body.len() / 2]);
    }
    go.send(()).unwrap();
    for client in &mut clients {
        let mut half = vec![0; body.len() / 2];
        client.read_all(&mut half);
        assert_eq!(half, body[body.len() / 2..]);
    }
    assert_eq!(origin.count(), 1);
    assert_eq!(number(&proxy, "collapsed"), 7);
    assert_eq!(get(&proxy, &url, "").body, body);
    assert_eq!(origin.count(), 1);
}

#[test]
fn the_client_that_asked_first_may_leave() {
    let proxy = Server::start_proxy(&[]);
    let body = noise(100_000, 2);
    let (origin, go) = halting(FRESH, &body);
    let url = origin.url("/x");
    let mut first = begin(&proxy, &url);
    first.read_head();
    let mut second = begin(&proxy, &url);
    assert_eq!(second.read_head().status, 200);
    drop(first);
    go.send(()).unwrap();
    let mut got = vec![0; body.len()];
    second.read_all(&mut got);
    assert!(got == body);
    assert_eq!(origin.count(), 1);
}

#[test]
fn unshareable_responses_are_fetched_for_each() {
    let proxy = Server::start_proxy(&[]);
    let served = Arc::new(AtomicUsize::new(0));
    let counting = served.clone();
    let origin = Origin::start(move |asked, stream| {
        // All requests have arrived before the first is answered.
        if asked.number == 0 {
            thread::sleep(Duration::from_millis(200));
        }
        counting.fetch_add(1, Ordering::Relaxed);
        let body = format!("for {}", asked.header("x-who").unwrap());
        let head = format!("cache-control: private\r\ncontent-length: {}", body.len());
        write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").is_ok()
    });
    let url = origin.url("/x");
    thread::scope(|scope| {
        for who in 0..6 {
            let (proxy, url) = (&proxy, &url);
            scope.spawn(move || {
                let response = get(proxy, url, &format!("x-who: {who}\r\n"));
                assert_eq!(response.text(), format!("for {who}"));
            });
        }
    });
    assert_eq!(served.load(Ordering::Relaxed), 6);
}

#[test]
fn a_request_for_another_variant_does_not_get_this_one() {
    let proxy = Server::start_proxy(&[]);
    let origin = Origin::start(move |asked, stream| {
        if asked.number == 0 {
            thread::sleep(Duration::from_millis(200));
        }
        let body = asked.header("accept-language").unwrap();
        let head = format!("{FRESH}vary: accept-language\r\ncontent-length: {}", body.len());
        write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").is_ok()
    });
    let url = origin.url("/x");
    thread::scope(|scope| {
        for language in ["de", "en", "de", "en", "fr", "de"] {
            let (proxy, url) = (&proxy, &url);
            scope.spawn(move || {
                let response = get(proxy, url, &format!("accept-language: {language}\r\n"));
                assert_eq!(response.text(), language, "{}", note(&response));
            });
        }
    });
}

#[test]
fn a_slow_reader_of_a_kept_response_delays_no_other() {
    let proxy = Server::start_proxy(&["--object-max-kb", "8192"]);
    let body = noise(4_000_000, 3);
    let sent = body.clone();
    let origin = Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{FRESH}\r\n", sent.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&sent).is_ok()
    });
    let slow = begin(&proxy, &origin.url("/x"));
    assert!(get(&proxy, &origin.url("/x"), "").body == body);
    assert_eq!(origin.count(), 1);
    drop(slow);
}

#[test]
fn a_large_response_streams_through_in_little_memory() {
    let proxy = Server::start_proxy(&["--cache-mb", "16", "--object-max-kb", "100"]);
    const LEN: usize = 200 << 20;
    // The length is unknown, so its size shows only during the transfer.
    let origin = Origin::start(move |_, stream| {
        let piece = [b'x'; 1 << 16];
        let head = format!("HTTP/1.1 200 OK\r\n{FRESH}transfer-encoding: chunked\r\n\r\n");
        let mut is_well = stream.write_all(head.as_bytes()).is_ok();
        for _ in 0..LEN / piece.len() {
            is_well = is_well
                && stream.write_all(b"10000\r\n").is_ok()
                && stream.write_all(&piece).is_ok()
                && stream.write_all(b"\r\n").is_ok();
        }
        is_well && stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let before = proxy.resident_max();
    for count in 1..3 {
        assert_eq!(get(&proxy, &origin.url("/x"), "").body.len(), LEN);
        assert_eq!(origin.count(), count, "not kept");
    }
    let grown = proxy.resident_max().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more for {LEN} bytes");
}

#[test]
fn memory_of_the_cache_is_bounded() {
    let proxy = Server::start_proxy(&["--cache-mb", "16"]);
    let origin = Origin::of(|asked| {
        let mut answer = format!("HTTP/1.1 200 OK\r\n{FRESH}content-length: 100000\r\n\r\n").into_bytes();
        answer.extend(noise(100_000, asked.number as u64 + 1));
        answer
    });
    let mut client = proxy.connect();
    for index in 0..600 {
        assert_eq!(client.get(&origin.url(&format!("/{index}"))).body, noise(100_000, index + 1));
    }
    let bytes: u64 = {
        let status = proxy.get("/-/status");
        let text = status.text().to_owned();
        let cache = &text[text.find("\"addresses\"").unwrap()..];
        cache[cache.find("\"bytes\":").unwrap() + 8..].split(',').next().unwrap().parse().unwrap()
    };
    assert!((8 << 20..=16 << 20).contains(&bytes), "{bytes} bytes are kept of 60,000,000");
    assert!(number(&proxy, "evictions") >= 400);
}
