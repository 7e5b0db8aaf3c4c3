//! Stopping: no new connections, started requests are finished, exit code 0.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Server, Site, eventually, noise};

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// Longer than any test waits: if the server did not end earlier, it would take this long.
const DRAIN: [&str; 2] = ["--drain-s", "600"];

/// Whether no server listens there any more. The kernel may let clients wait for a second first.
fn is_closed(port: u16) -> bool {
    eventually(LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_err())
}

#[test]
fn an_idle_server_stops_at_once() {
    let site = Site::with_index();
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&site.path, &[&DRAIN[..], &["--idle-timeout-s", "600"]].concat());
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        // A silent connection is open as well.
        let silent = server.connect();
        server.signal(signal);
        let status = server.wait(LIMIT).expect("it stops");
        assert_eq!(status.code(), Some(0));
        assert_eq!(client.read_to_end().unwrap(), b"", "the idle connection was closed");
        drop(silent);
    }
}

#[test]
fn a_download_in_flight_is_finished() {
    let site = Site::new();
    let large = noise(48 << 20, 5);
    site.write("large.bin", &large);
    for options in [&["--cache-mb", "1"][..], &["--cache-mb", "2000"], &["--cache-mb", "1", "--serial"]] {
        let mut server = Server::start(&site.path, &[&DRAIN[..], options].concat());
        let mut client = server.connect();
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
        let mut body = vec![0; 1 << 20];
        let count = client.read(&mut body).unwrap();
        body.truncate(count);
        server.signal(Signal::TERM);
        assert!(is_closed(server.port), "no new connection is accepted");
        body.extend(client.read_to_end().unwrap());
        assert!(body == large, "{options:?}: {} of {} bytes", body.len(), large.len());
        assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
    }
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_it_up() {
    let site = Site::new();
    site.write("large.bin", noise(48 << 20, 5));
    let mut server = Server::start(&site.path, &["--cache-mb", "1"]);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(LIMIT).expect("the server stops in time").code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let site = Site::new();
    site.write("large.bin", noise(48 << 20, 5));
    let mut server = Server::start(&site.path, &[&DRAIN[..], &["--cache-mb", "1"]].concat());
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    server.signal(Signal::INT);
    assert!(is_closed(server.port));
    server.signal(Signal::INT);
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(130));
}
