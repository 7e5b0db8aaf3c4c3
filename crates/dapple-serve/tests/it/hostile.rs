//! Hostile HTTP/2 peers: the server drops them, serves others meanwhile, and keeps nothing of them.

use std::time::Duration;

use dapple::tls::{Certificates, TlsAcceptor};
use soak::{Attack, Frames, HEADERS, Trust, Wire};

use crate::support::{Server, ask, connect, end, eventually, outside};

const SECOND: Duration = Duration::from_secs(1);

/// A server with short limits.
macro_rules! impatient {
    ($server:expr) => {
        $server
            .idle_timeout(2 * SECOND)
            .head_timeout(2 * SECOND)
            .body_timeout(SECOND)
            .pause_timeout(SECOND)
            .no_admission()
    };
}

fn attack(server: &Server, connect_http2: impl Fn() -> Wire) {
    for attack in Attack::ALL {
        let mut peer = Frames::begin(connect_http2(), attack.window()).unwrap();
        let path = if attack == Attack::StandingBodies { "/read" } else { "/zeros" };
        let is_ended = attack.play(&mut peer, path, attack.steps()).unwrap();
        assert!(is_ended, "{attack:?}: the server did not end the connection");
        // The client still exists: the server must end the connection by itself.
        eventually(&format!("{attack:?}: the connection stays"), || server.handle.connections() == 0);
        drop(peer);
    }
}

#[test]
fn http2_attacks_end_and_leave_nothing() {
    let (runtime, server) = outside!(server => impatient!(server));
    attack(&server, || Wire::plain(server.addr.port()).unwrap());
    assert_eq!(ask(&mut connect(server.addr), "/hello").1, "hello");
    end(runtime, server);
}

#[test]
fn http2_attacks_over_tls_end_and_leave_nothing() {
    let certificates = Certificates::self_signed([NAME]).unwrap();
    let trust = Trust::new(certificates.first().clone(), "h2").unwrap();
    let acceptor = TlsAcceptor::with_alpn(certificates, ["h2", "http/1.1"]).unwrap();
    let (runtime, server) = outside!(server => impatient!(server.tls(acceptor)));
    attack(&server, || Wire::tls(server.addr.port(), NAME, &trust).unwrap());
    end(runtime, server);
}

/// A hundred streams per connection, within the limit, that the peer never continues.
#[test]
fn stalled_streams_are_ended() {
    let (runtime, server) = outside!(server => impatient!(server));
    for (attack, path) in [(Attack::ClosedWindows, "/zeros"), (Attack::StandingBodies, "/read")] {
        let mut peer = Frames::begin(Wire::plain(server.addr.port()).unwrap(), attack.window()).unwrap();
        assert!(!attack.play(&mut peer, path, 1).unwrap(), "{attack:?}: so many streams are allowed");
        let mut replies = 0;
        while let Some(frame) = peer.receive().unwrap() {
            replies += u32::from(frame.kind == HEADERS);
        }
        assert_eq!(replies, 100, "{attack:?}");
    }
    end(runtime, server);
}

/// A thousand heads that never end do not lock other clients out.
#[test]
fn a_thousand_slow_heads_do_not_lock_others_out() {
    let (runtime, server) = outside!(server => server.connections_max(200).head_timeout(600 * SECOND));
    let mut slow = Vec::new();
    for _ in 0..1_000 {
        let mut client = connect(server.addr);
        let _ = std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nx-slow: ");
        slow.push(client);
    }
    // Connections make room after a second.
    eventually("a well-behaved client is served", || {
        let mut client = connect(server.addr);
        let _ = std::io::Write::write_all(&mut client, crate::support::get("/hello").as_bytes());
        client.set_read_timeout(Some(SECOND)).unwrap();
        let mut reply = [0; 15];
        std::io::Read::read_exact(&mut client, &mut reply).is_ok() && reply.starts_with(b"HTTP/1.1 200 OK")
    });
    drop(slow);
    end(runtime, server);
}

const NAME: &str = "localhost";
