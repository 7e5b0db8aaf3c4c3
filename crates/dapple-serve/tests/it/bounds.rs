//! Bounds that hold under any load.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LIMIT, connect, end, eventually, outside, reply};

/// Sends one request with a body, in two pieces; returns the status of its reply, or `None` if the
/// connection is over.
fn work(client: &mut TcpStream) -> Option<u16> {
    let head = format!("POST /work?5000 HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY_LEN}\r\n\r\n");
    let piece = [b'x'; BODY_LEN / 2];
    for piece in [head.as_bytes(), &piece, &piece] {
        client.write_all(piece).ok()?;
    }
    status(client)
}

fn status(client: &mut TcpStream) -> Option<u16> {
    let mut peeked = [0];
    let len = client.peek(&mut peeked).ok()?;
    (len > 0).then(|| reply(client).0)?.split(' ').nth(1)?.parse().ok()
}

/// Sends requests without pause, and replaces connections that end.
fn press(addr: SocketAddr, is_over: &AtomicBool, counts: &[AtomicU64; 2]) {
    let mut client = connect(addr);
    while !is_over.load(Ordering::Relaxed) {
        match work(&mut client) {
            Some(200) => drop(counts[0].fetch_add(1, Ordering::Relaxed)),
            Some(503) => drop(counts[1].fetch_add(1, Ordering::Relaxed)),
            Some(other) => panic!("{other}"),
            // The server ends a connection with an unread body, and turns away clients without a
            // place.
            None => client = connect(addr),
        }
    }
}

/// Far more requests with bodies than there is time for, on more connections than allowed.
#[test]
fn waiting_requests_and_open_connections_stay_within_their_bounds() {
    let (runtime, server) = outside!(server => server.connections_max(CONNECTIONS));
    let (is_over, counts) = (Arc::new(AtomicBool::new(false)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
    let addr = server.addr;
    let load: Vec<_> = (0..2 * CONNECTIONS)
        .map(|_| {
            let (is_over, counts) = (is_over.clone(), counts.clone());
            thread::spawn(move || press(addr, &is_over, &counts))
        })
        .collect();
    let count = |which: usize| counts[which].load(Ordering::Relaxed);
    let begin = Instant::now();
    let mut most = (0, 0, 0);
    while begin.elapsed() < Duration::from_secs(2)
        || (count(0) == 0 || count(1) < 5 * count(0)) && begin.elapsed() < LIMIT
    {
        let stats = server.handle.admission().expect("it is on");
        let connections = server.handle.connections();
        assert!(stats.waiting <= 1_024 && stats.in_service <= CONNECTIONS && connections <= CONNECTIONS, "{stats:?}");
        most = (most.0.max(stats.waiting), most.1.max(stats.in_service), most.2.max(connections));
        thread::sleep(Duration::from_millis(2));
    }
    is_over.store(true, Ordering::Relaxed);
    for load in load {
        load.join().unwrap();
    }
    println!(
        "{} were served, {} refused; at most {most:?} waited, were in service, were connected",
        count(0),
        count(1)
    );
    assert!(count(0) > 0 && count(1) >= 5 * count(0), "{} and {}: that is no overload", count(0), count(1));
    assert!(most.2 > CONNECTIONS / 2, "there were {} connections at most", most.2);
    eventually("nobody is left", || server.handle.connections() == 0);
    let stats = server.handle.admission().expect("it is on");
    assert_eq!((stats.waiting, stats.in_service), (0, 0), "nothing of it stays");
    end(runtime, server);
}

const CONNECTIONS: usize = 60;
const BODY_LEN: usize = 32 << 10;
