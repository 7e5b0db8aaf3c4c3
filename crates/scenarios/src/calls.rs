//! Calls over datagrams that are repeated until they are answered, and take effect once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple_sim::net::UdpSocket;
use dapple_sim::time::{sleep, timeout};
use dapple_sim::{Faults, Simulation};

use crate::Scenario;

pub(crate) const CALLS: Scenario = Scenario {
    name: "calls",
    holds: "a call that is repeated until it is answered takes effect exactly once",
    setup: |sim| calls(sim, None),
    bugs: &[
        ("the server forgets what it has done", |sim| calls(sim, Some(Bug::Repeats))),
        ("the server remembers the last call only", |sim| calls(sim, Some(Bug::RemembersOne))),
        ("the client takes any answer for its own", |sim| calls(sim, Some(Bug::AnyAnswer))),
        ("the client does not repeat a call", |sim| calls(sim, Some(Bug::NoRetry))),
        ("each repetition has a number of its own", |sim| calls(sim, Some(Bug::FreshNumbers))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    Repeats,
    RemembersOne,
    AnyAnswer,
    NoRetry,
    FreshNumbers,
}

fn calls(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| {
        let network = &mut settings.network;
        (network.loss, network.duplication, network.reordering) = (30_000, 30_000, 100_000);
        settings.time_max = Duration::from_secs(600);
    });
    let done = Arc::new(AtomicU64::new(0));
    let of_server = done.clone();
    sim.host("server", move || serve(of_server.clone(), bug));
    let asked = Arc::new(AtomicU64::new(0));
    for client in 0..2 {
        let (asked, done, count) = (asked.clone(), done.clone(), 10 + sim.pick(30) as u64);
        sim.client(&format!("client{client}"), move || {
            let (asked, done) = (asked.clone(), done.clone());
            async move {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                let mut next = client << 32;
                for _ in 0..count {
                    asked.fetch_add(1, Relaxed);
                    call(&socket, &mut next, bug).await;
                }
                // Late repetitions come, too.
                sleep(Duration::from_secs(5)).await;
                assert!(done.load(Relaxed) <= asked.load(Relaxed), "a call took effect twice");
            }
        });
    }
    sim.invariant(move || {
        let (done, asked) = (done.load(Relaxed), asked.load(Relaxed));
        // Each client has one call that may not have arrived yet.
        if done <= asked && done + 2 >= asked { Ok(()) } else { Err(format!("{asked} calls took effect {done} times")) }
    });
    let within = Faults::new(Duration::from_secs(5));
    sim.faults(&within.cut("client0", "server").cut("client1", "server").freeze("server").freeze("client0"));
}

/// Adds one for each call.
async fn serve(done: Arc<AtomicU64>, bug: Option<Bug>) {
    let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
    let mut seen: BTreeMap<SocketAddr, BTreeSet<u64>> = BTreeMap::new();
    let mut last = None;
    let mut bytes = [0; 8];
    loop {
        let Ok((8, from)) = socket.recv_from(&mut bytes).await else { continue };
        let number = u64::from_be_bytes(bytes);
        let is_new = match bug {
            Some(Bug::Repeats) => true,
            Some(Bug::RemembersOne) => last.replace((from, number)) != Some((from, number)),
            _ => seen.entry(from).or_default().insert(number),
        };
        if is_new {
            done.fetch_add(1, Relaxed);
        }
        let _ = socket.send_to(&bytes, from).await;
    }
}

async fn call(socket: &UdpSocket, next: &mut u64, bug: Option<Bug>) {
    *next += 1;
    let mut sends = true;
    loop {
        if sends {
            let _ = socket.send_to(&next.to_be_bytes(), "server:9").await;
        }
        let answer = async {
            let mut bytes = [0; 8];
            loop {
                let Ok((8, _)) = socket.recv_from(&mut bytes).await else { continue };
                if bug == Some(Bug::AnyAnswer) || u64::from_be_bytes(bytes) == *next {
                    return;
                }
            }
        };
        if timeout(Duration::from_millis(20), answer).await.is_ok() {
            return;
        }
        sends = bug != Some(Bug::NoRetry);
        if bug == Some(Bug::FreshNumbers) {
            *next += 1;
        }
    }
}
