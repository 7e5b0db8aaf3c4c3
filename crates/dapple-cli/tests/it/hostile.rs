//! Peers of HTTP/2 and TLS that do what nobody should: they are let go, others are served meanwhile, and nothing of them stays.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use soak::{Attack, Frames, HEADERS, Trust, Unfinished, Wire};

use crate::support::{Server, Site, eventually, noise};
use crate::tls::Certificate;

/// A server that is not patient.
fn start(site: &Path, options: &[&str]) -> Server {
    let limits = ["--idle-timeout-s", "2", "--pause-timeout-s", "1", "--head-timeout-s", "2"];
    Server::start(site, &[&limits, options].concat())
}

/// Connections, but for the one that asks.
fn open(mut wire: Wire) -> u64 {
    std::io::Write::write_all(&mut wire, b"GET /-/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    wire.read_to_string(&mut reply).unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    status["connections"]["open"].as_u64().unwrap() - 1
}

fn page(mut wire: Wire) -> Vec<u8> {
    std::io::Write::write_all(&mut wire, b"GET /page.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    wire.read_to_end(&mut reply).unwrap();
    let head = reply.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    reply.split_off(head + 4)
}

/// All that one can do by HTTP/2, on connections that are made like this.
fn attack(server: &Server, connect: impl Fn(&'static str) -> Wire, content: &[u8]) {
    let before = server.resident_max();
    for attack in Attack::ALL {
        let mut peer = Frames::begin(connect("h2"), attack.window()).unwrap();
        let is_ended = attack.play(&mut peer, "/page.bin", attack.steps()).unwrap();
        assert!(is_ended, "{attack:?}: the server put up with it");
        assert!(page(connect("http/1.1")) == content, "{attack:?}: others are served");
        // It is still there: whatever is left of it, the server is to give up.
        assert!(eventually(LIMIT, || open(connect("http/1.1")) == 0), "{attack:?}: the connection stays");
        drop(peer);
    }
    let more = server.resident_max() - before;
    assert!(more < RESIDENT_MORE, "{more} bytes");
}

#[test]
fn attacks_by_http2_end_and_leave_nothing() {
    let (site, content) = (Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let server = start(&site.path, &[]);
    attack(&server, |_| Wire::plain(server.port).unwrap(), &content);
}

#[test]
fn so_they_do_within_tls() {
    let (site, secrets, content) = (Site::new(), Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = start(&site.path, &certificate.options());
    let connect = |alpn| Wire::tls(server.port, NAME, &trust(&certificate.der, alpn)).unwrap();
    attack(&server, connect, &content);
}

/// A hundred streams each, within what is allowed, that the peer never goes on with.
#[test]
fn streams_that_stand_still_are_ended() {
    let (site, content) = (Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let server = start(&site.path, &[]);
    for attack in [Attack::ClosedWindows, Attack::StandingBodies] {
        let mut peer = Frames::begin(Wire::plain(server.port).unwrap(), attack.window()).unwrap();
        assert!(!attack.play(&mut peer, "/page.bin", 1).unwrap(), "{attack:?}: so many streams are allowed");
        let mut replies = 0;
        while let Some(frame) = peer.receive().unwrap() {
            replies += u32::from(frame.kind == HEADERS);
        }
        assert_eq!(replies, 100, "{attack:?}");
    }
    assert!(eventually(LIMIT, || open(Wire::plain(server.port).unwrap()) == 0));
}

/// Also a peer that asks for nothing, and is answered all the time, rests.
#[test]
fn pings_keep_nobody() {
    let site = Site::with_index();
    let server = start(&site.path, &["--send-rate-min", "1"]);
    let mut peer = Frames::begin(Wire::plain(server.port).unwrap(), 65_535).unwrap();
    let mut pings = 0;
    while peer.send(soak::PING, 0, 0, &[1; 8]).is_ok() && pings < 900 {
        pings += 1;
        std::thread::sleep(Duration::from_millis(40));
        if peer.until(soak::PING).unwrap().is_none() {
            break;
        }
    }
    assert!(pings < 900, "it was not let go");
}

#[test]
fn handshakes_that_do_not_end_are_let_go() {
    let (site, secrets, content) = (Site::new(), Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = start(&site.path, &certificate.options());
    let trust = trust(&certificate.der, "http/1.1");
    let stop = [Unfinished::Hello(1), Unfinished::Hello(100), Unfinished::Answered, Unfinished::Nonsense];
    let mut peers: Vec<(Unfinished, Wire)> = Vec::new();
    for unfinished in stop.into_iter().cycle().take(100) {
        let mut wire = Wire::plain(server.port).unwrap();
        // Whoever sends nonsense may be cut off before its end.
        let played = unfinished.play(&mut wire, NAME, &trust);
        assert!(played.is_ok() || unfinished == Unfinished::Nonsense, "{unfinished:?}: {played:?}");
        peers.push((unfinished, wire));
    }
    let connect = || Wire::tls(server.port, NAME, &trust).unwrap();
    assert!(page(connect()) == content, "others are served");
    assert!(eventually(LIMIT, || open(connect()) == 0), "they stay");
    drop(peers);
}

/// The keys of TLS 1.3 may be changed at any time, which is work for the server, and brings nothing.
#[test]
fn keys_that_are_changed_over_and_over_keep_nobody() {
    let (site, secrets, content) = (Site::new(), Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = start(&site.path, &certificate.options());
    let trust = trust(&certificate.der, "http/1.1");
    let before = server.resident_max();
    let mut peer = Wire::tls(server.port, NAME, &trust).unwrap();
    let mut changes = 0;
    while peer.change_keys().is_ok() && changes < 100_000 {
        changes += 1;
    }
    assert!(changes < 100_000, "the server put up with it");
    assert!(page(Wire::tls(server.port, NAME, &trust).unwrap()) == content, "others are served");
    assert!(eventually(LIMIT, || open(Wire::tls(server.port, NAME, &trust).unwrap()) == 0), "it stays");
    assert!(server.resident_max() - before < RESIDENT_MORE);
}

fn trust(root: &CertificateDer<'static>, alpn: &str) -> Trust {
    Trust::new(root.clone(), alpn).unwrap()
}

const NAME: &str = "a.example";

/// What all attacks together may take, at the most.
const RESIDENT_MORE: u64 = 32 << 20;

/// How long anything may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(40);
