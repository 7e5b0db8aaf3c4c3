//! The parts of `dapple store serve` that all servers share: TLS, metrics, and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::server::Server;
use crate::metrics::page;
use crate::support::{Client, Site};
use crate::tls::{Certificate, connect};

/// Sends `PING` over TLS; whether `certificate` was the server's.
fn pings(port: u16, certificate: &Certificate) -> bool {
    dapple::block_on(async {
        let connector = dapple::tls::TlsConnector::with_roots([certificate.der.clone()]).unwrap();
        let stream = dapple::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let Ok(stream) = connector.connect("a.example", stream, crate::tls::LIMIT).await else { return false };
        stream.write_all(b"PING\r\nQUIT\r\n").await.unwrap();
        let mut replies = [0; 12];
        stream.read_exact(&mut replies).await.unwrap();
        // The end is regular: without `close_notify` this would be an error.
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(&replies, b"+PONG\r\n+OK\r\n");
        true
    })
}

fn port(server: &Server) -> u16 {
    server.addr().rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn clients_may_come_over_tls_and_sighup_reads_the_certificate_again() {
    let (folder, secrets) = (tempfile::tempdir().unwrap(), Site::new());
    let old = Certificate::make(&secrets, "a", "a.example");
    let server = Server::start(folder.path(), &old.options());
    assert!(pings(port(&server), &old));
    dapple::block_on(async {
        let stream = connect(port(&server), "a.example", &[&old], &[]).await;
        assert_eq!(stream.alpn(), None);
    });
    // A client without TLS gets no reply.
    let mut plain = TcpStream::connect(server.addr()).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply);
    assert!(reply.is_empty(), "{reply:?}");
    let new = Certificate::make(&secrets, "a", "a.example");
    server.signal(Signal::HUP);
    while !pings(port(&server), &new) {}
    server.stop();
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.pem");
    let file = file.to_str().unwrap();
    let words = ["serve", "--port", "0", "--tls-cert", file, "--tls-key", file];
    assert!(super::problem(folder.path(), &words, 1).contains("none.pem"));
    super::problem(folder.path(), &["serve", "--port", "0", "--tls-cert", file], 2);
}

#[test]
fn metrics_and_health_have_an_address_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &["--metrics", "127.0.0.1:0", "--partitions", "2"]);
    let line = server.line();
    let metrics = line.trim().strip_prefix("dapple: metrics on http://127.0.0.1:").unwrap();
    let metrics: u16 = metrics.strip_suffix("/metrics").unwrap().parse().unwrap();
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.write_all(b"SET a 1\r\nGET a\r\nSUBSCRIBE c\r\n").unwrap();
    let mut replies = [0; 5 + 7 + 30];
    client.read_exact(&mut replies).unwrap();
    assert_eq!(server.ask("PUBLISH c x\nPUBLISH d x"), ":1 :0 ");
    // The server may see the end of the other connection a moment later.
    let begin = Instant::now();
    let found = loop {
        let found = page(metrics);
        if found.value("dapple_connections_open") == 1.0 {
            break found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the connection stays open");
    };
    for (sample, value) in [
        ("dapple_connections_total", 2.0),
        ("dapple_store_messages_published_total", 2.0),
        ("dapple_store_messages_delivered_total", 1.0),
        ("dapple_store_subscribers_cut_total", 0.0),
        ("dapple_store_channels", 1.0),
        ("dapple_store_patterns", 0.0),
    ] {
        assert_eq!(found.value(sample), value, "{sample}");
    }
    assert!(found.value("dapple_store_commands_total") >= 3.0);
    let health = Client::connect(("127.0.0.1", metrics)).get("/-/healthy");
    assert_eq!((health.status, health.text()), (200, "ok\n"));
    server.stop();
}

#[test]
fn a_subscriber_does_not_delay_the_end_and_gets_what_was_published() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--drain-s", "3600"]);
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.write_all(b"SUBSCRIBE c\r\n").unwrap();
    let mut reply = [0; 30];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(server.ask("PUBLISH c x"), ":1 ");
    server.stop();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
}
