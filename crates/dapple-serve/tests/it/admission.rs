//! Overload: more requests than there is time for.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dapple::stage::admission::{Admission, Class, Config};

use crate::support::{ask, connect, end, eventually, get, outside, reply};

/// Sends `count` requests at once, each on a connection of its own. Returns the number that
/// succeeded, and the heads of the refusals.
fn burst(addr: SocketAddr, path: &str, count: usize) -> (usize, Vec<(String, String)>) {
    let mut clients: Vec<_> = (0..count).map(|_| connect(addr)).collect();
    for client in &mut clients {
        client.write_all(get(path).as_bytes()).unwrap();
    }
    let replies: Vec<_> = clients.iter_mut().map(reply).collect();
    let (served, refused): (Vec<_>, Vec<_>) =
        replies.into_iter().partition(|(head, _)| head.starts_with("HTTP/1.1 200"));
    assert!(refused.iter().all(|(head, _)| head.starts_with("HTTP/1.1 503 ")), "{refused:?}");
    // A refused client may ask again on the same connection.
    for client in &mut clients {
        eventually("it is served", || ask(client, "/health").1 == "hello");
    }
    (served.len(), refused)
}

#[test]
fn late_requests_are_refused_with_a_reason() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    // The server learns the cost of these requests.
    for _ in 0..5 {
        assert_eq!(ask(&mut client, "/spin?20000").1, "spun");
    }
    let (served, refused) = burst(server.addr, "/spin?20000", 100);
    assert!(served > 0, "some are in time");
    // Two workers have 200 ms of time within the target, enough for ten of these requests.
    assert!(refused.len() > 50, "{} were refused", refused.len());
    for (head, body) in refused {
        let after = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect("it says when");
        assert!(after.parse::<u64>().unwrap() >= 1, "{head}");
        assert!(head.contains("content-type: text/plain") && !head.contains("connection: close"), "{head}");
        assert!(body.starts_with("refused: "), "{body}");
    }
    let stats = server.handle.admission().expect("it is on");
    assert!(stats.refused + stats.dropped > 50, "{stats:?}");
    drop(client);
    end(runtime, server);
}

#[test]
fn without_admission_all_requests_wait() {
    let (runtime, server) = outside!(server => server.no_admission());
    assert!(server.handle.admission().is_none());
    let (served, refused) = burst(server.addr, "/spin?10000", 50);
    assert_eq!((served, refused.len()), (50, 0));
    end(runtime, server);
}

#[test]
fn a_longer_target_takes_more() {
    let (runtime, server) = outside!(server => server.target_delay(Duration::from_secs(600)));
    let mut client = connect(server.addr);
    for _ in 0..5 {
        assert_eq!(ask(&mut client, "/spin?5000").1, "spun");
    }
    let (served, refused) = burst(server.addr, "/spin?5000", 14);
    assert_eq!((served, refused.len()), (14, 0));
    drop(client);
    end(runtime, server);
}

/// While everything else is refused, health checks are answered.
#[test]
fn health_checks_are_answered_under_load() {
    let (runtime, server) = outside!(server => server.classify(|request, _| match request.uri.path() {
        "/health" => Class::VITAL,
        _ => Class::LOW,
    }));
    let addr = server.addr;
    let load: Vec<_> = (0..4).map(|_| thread::spawn(move || burst(addr, "/spin?10000", 50))).collect();
    let mut client = connect(addr);
    let (mut asked, mut told) = (0, 0);
    while asked < 20 || !load.iter().all(thread::JoinHandle::is_finished) {
        told += u32::from(ask(&mut client, "/health").1 == "hello");
        asked += 1;
    }
    let served: usize = load.into_iter().map(|load| load.join().unwrap().0).sum();
    assert!(served < 100, "{served} of 200 were served: that is no overload");
    // If the machine stalls for longer than the target, even these are late.
    assert!(told * 2 > asked, "{told} of {asked}");
    drop(client);
    end(runtime, server);
}

#[test]
fn servers_can_decide_together() {
    let admission = Admission::new(Config::default());
    let shared = admission.clone();
    let (runtime, server) = outside!(server => server.share_admission(shared));
    assert_eq!(ask(&mut connect(server.addr), "/hello").1, "hello");
    assert_eq!(admission.stats().offered, 1);
    assert_eq!(server.handle.admission().map(|stats| stats.offered), Some(1));
    end(runtime, server);
}

/// A client with forty connections does not displace another with one, behind the same proxy.
#[test]
fn a_client_that_asks_for_more_gets_no_more() {
    let (runtime, server) = outside!(server => server.target_delay(Duration::from_millis(400)).describe(|parts, _, offer| {
        offer.client(parts.headers.get("x-tenant").map_or(0, |tenant| u64::from(tenant.as_bytes()[0])))
    }));
    let addr = server.addr;
    let spin = |tenant: &str| format!("GET /spin?10000 HTTP/1.1\r\nhost: a\r\nx-tenant: {tenant}\r\n\r\n");
    let is_over = Arc::new(AtomicBool::new(false));
    let greedy: Vec<_> = (0..40)
        .map(|_| {
            let (is_over, request) = (is_over.clone(), spin("a"));
            thread::spawn(move || {
                let (mut client, mut refused) = (connect(addr), 0);
                while !is_over.load(Ordering::Relaxed) {
                    client.write_all(request.as_bytes()).unwrap();
                    if reply(&mut client).0.starts_with("HTTP/1.1 503") {
                        refused += 1;
                        // A short pause, so that the server does more than refuse.
                        thread::sleep(Duration::from_millis(20));
                    }
                }
                refused
            })
        })
        .collect();
    let mut client = connect(addr);
    let mut served = 0;
    for _ in 0..40 {
        client.write_all(spin("b").as_bytes()).unwrap();
        served += u32::from(reply(&mut client).1 == "spun");
    }
    is_over.store(true, Ordering::Relaxed);
    let refused: u32 = greedy.into_iter().map(|greedy| greedy.join().unwrap()).sum();
    assert!(refused > 0, "there was enough for all");
    assert!(served >= 20, "{served} of 40 were served, while {refused} of the others were refused");
    drop(client);
    end(runtime, server);
}
