//! Hostile HTTP/2 and TLS peers: the server drops them, serves others meanwhile, and keeps nothing
//! of them.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use soak::{Attack, Frames, HEADERS, Trust, Unfinished, Wire};

use crate::support::{Server, Site, eventually, noise};
use crate::tls::Certificate;

/// Starts a server with short limits.
fn start(site: &Path, options: &[&str]) -> Server {
    let limits = ["--idle-timeout-s", "2", "--pause-timeout-s", "1", "--head-timeout-s", "2"];
    Server::start(site, &[&limits, options].concat())
}

/// The number of open connections, without the one for this request.
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

/// Runs all HTTP/2 attacks, on connections made by `connect`.
fn attack(server: &Server, connect: impl Fn(&'static str) -> Wire, content: &[u8]) {
    let before = server.resident_max();
    for attack in Attack::ALL {
        let mut peer = Frames::begin(connect("h2"), attack.window()).unwrap();
        let is_ended = attack.play(&mut peer, "/page.bin", attack.steps()).unwrap();
        assert!(is_ended, "{attack:?}: the server did not end the connection");
        assert!(page(connect("http/1.1")) == content, "{attack:?}: others are served");
        // The client is still there: the server must end the connection whatever is left of it.
        assert!(eventually(LIMIT, || open(connect("http/1.1")) == 0), "{attack:?}: the connection stays");
        drop(peer);
    }
    let more = server.resident_max() - before;
    assert!(more < RESIDENT_MORE, "{more} bytes");
}

#[test]
fn http2_attacks_end_and_leave_nothing() {
    let (site, content) = (Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let server = start(&site.path, &[]);
    attack(&server, |_| Wire::plain(server.port).unwrap(), &content);
}

#[test]
fn http2_attacks_over_tls_end_and_leave_nothing() {
    let (site, secrets, content) = (Site::new(), Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = start(&site.path, &certificate.options());
    let connect = |alpn| Wire::tls(server.port, NAME, &trust(&certificate.der, alpn)).unwrap();
    attack(&server, connect, &content);
}

/// A hundred streams per connection, within the limit, that the peer never continues.
#[test]
fn stalled_streams_are_ended() {
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

/// A peer that makes no requests is idle, even if the server answers its pings all the time.
#[test]
fn pings_do_not_keep_a_connection() {
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
    assert!(pings < 900, "the server did not end the connection");
}

#[test]
fn unfinished_handshakes_are_dropped() {
    let (site, secrets, content) = (Site::new(), Site::new(), noise(100_000, 1));
    site.write("page.bin", &content);
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = start(&site.path, &certificate.options());
    let trust = trust(&certificate.der, "http/1.1");
    let stop = [Unfinished::Hello(1), Unfinished::Hello(100), Unfinished::Answered, Unfinished::Nonsense];
    let mut peers: Vec<(Unfinished, Wire)> = Vec::new();
    for unfinished in stop.into_iter().cycle().take(100) {
        let mut wire = Wire::plain(server.port).unwrap();
        // The server may cut off a client that sends garbage before the client has finished.
        let played = unfinished.play(&mut wire, NAME, &trust);
        assert!(played.is_ok() || unfinished == Unfinished::Nonsense, "{unfinished:?}: {played:?}");
        peers.push((unfinished, wire));
    }
    let connect = || Wire::tls(server.port, NAME, &trust).unwrap();
    assert!(page(connect()) == content, "others are served");
    assert!(eventually(LIMIT, || open(connect()) == 0), "they stay");
    drop(peers);
}

/// A client may change the keys of TLS 1.3 at any time, which is useless work for the server.
#[test]
fn repeated_key_changes_do_not_keep_a_connection() {
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
    assert!(changes < 100_000, "the server did not end the connection");
    assert!(page(Wire::tls(server.port, NAME, &trust).unwrap()) == content, "others are served");
    assert!(eventually(LIMIT, || open(Wire::tls(server.port, NAME, &trust).unwrap()) == 0), "it stays");
    assert!(server.resident_max() - before < RESIDENT_MORE);
}

fn trust(root: &CertificateDer<'static>, alpn: &str) -> Trust {
    Trust::new(root.clone(), alpn).unwrap()
}

const NAME: &str = "a.example";

/// The most memory that all attacks together may take.
const RESIDENT_MORE: u64 = 32 << 20;

/// A limit that only a bug reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);
