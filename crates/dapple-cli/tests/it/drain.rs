//! Stopping under load: every started response, and every accepted request, is answered in full.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Server, Site, eventually, noise};

/// How a client saw the end.
enum Met {
    /// No server listens any more.
    Refused,
    /// A reply announced the end of the connection.
    Told,
    /// The connection was idle, by the server's clock, and ended without a byte of a reply.
    Idle,
}

/// Sends requests on one connection until it ends, and checks every reply.
fn ask(port: u16, body: &[u8], done: &AtomicU64) -> Met {
    let mut stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Met::Refused,
        // A handshake at the moment of the end: the kernel had the socket before it, and not after.
        Err(error) => panic!("{error}"),
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    for count in 0.. {
        let sent = stream.write_all(b"GET /page.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(sent.is_ok() || count > 0, "an accepted connection is answered: {sent:?}");
        let mut response = Vec::new();
        let mut buf = [0; 64 << 10];
        while !(response.ends_with(body) && response.len() > body.len()) {
            match stream.read(&mut buf) {
                Ok(0) | Err(_) if response.is_empty() && count > 0 => return Met::Idle,
                Ok(0) => panic!("cut: request {count}, after {} bytes", response.len()),
                read => response.extend_from_slice(&buf[..read.unwrap()]),
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
        let head = response[..response.len() - body.len()].to_ascii_lowercase();
        if head.windows(17).any(|window| window == b"connection: close") {
            return Met::Told;
        }
        if count == 20 {
            return Met::Told;
        }
    }
    unreachable!()
}

fn no_response_is_lost(options: &[&str]) {
    let site = Site::new();
    let body = noise(30_000, 3);
    site.write("page.bin", &body);
    let mut server = Server::start(&site.path, options);
    let (done, port) = (AtomicU64::new(0), server.port);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                // At some point the listening socket closes, and all clients stop.
                while !matches!(ask(port, &body, &done), Met::Refused) {}
            });
        }
        assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > 1_000), "the load runs");
        server.signal(Signal::TERM);
    });
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
}

#[test]
fn no_response_is_lost_at_the_end() {
    no_response_is_lost(&[]);
}

#[test]
fn no_response_is_lost_at_the_end_of_one_color() {
    no_response_is_lost(&["--serial"]);
}

#[test]
fn a_response_that_takes_too_long_is_cut_and_counted() {
    let site = Site::new();
    site.write("large.bin", noise(48 << 20, 5));
    let mut server = Server::start_with_log(&site.path, &["--cache-mb", "1", "--drain-s", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    server.signal(Signal::TERM);
    let log = server.log_to_end();
    assert_eq!(server.wait(LIMIT).expect("the server stops in time").code(), Some(0));
    assert!(log.contains("cut=1"), "{log}");
}

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
