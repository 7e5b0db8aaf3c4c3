//! The program of `docs/simulation.md`, and what the page says of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple_sim::net::UdpSocket;
use dapple_sim::time::timeout;
use dapple_sim::{Faults, Plan, Simulation, check};

/// The mistakes that are mended.
#[derive(Clone, Copy)]
struct Mended {
    server: bool,
    client: bool,
}

async fn serve(count: Arc<AtomicU64>, mended: Mended) {
    let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
    let mut question = [0; 8];
    let mut seen = HashSet::new();
    loop {
        let Ok((8, from)) = socket.recv_from(&mut question).await else { continue };
        if seen.insert(question) || !mended.server {
            count.fetch_add(1, Relaxed);
        }
        let _ = socket.send_to(&question, from).await;
    }
}

async fn add_one(socket: &UdpSocket, number: u64, mended: Mended) {
    let mut answer = [0; 8];
    loop {
        let _ = socket.send_to(&number.to_be_bytes(), "server:9").await;
        let came = timeout(Duration::from_millis(20), socket.recv_from(&mut answer)).await.is_ok();
        if came && (answer == number.to_be_bytes() || !mended.client) {
            return;
        }
    }
}

fn counting(sim: &mut Simulation, mended: Mended) {
    let count = Arc::new(AtomicU64::new(0));
    let of_server = count.clone();
    sim.host("server", move || serve(of_server.clone(), mended));
    sim.client("client", move || {
        let count = count.clone();
        async move {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 1..=20 {
                add_one(&socket, number, mended).await;
            }
            assert_eq!(count.load(Relaxed), 20, "each call counts once");
        }
    });
    sim.faults(&Faults::new(Duration::from_secs(1)).cut("server", "client").freeze("server"));
}

/// The report of the first seed of 200 that fails.
fn report(mended: Mended) -> String {
    let run = || check("each_call_counts_once", 200, |sim| counting(sim, mended));
    *std::panic::catch_unwind(run).unwrap_err().downcast::<String>().expect("a report")
}

/// The numbers of a report of the page are those that the program prints.
fn is_on_the_page(report: &str) {
    let page = include_str!("../../../../docs/simulation.md");
    let page: Vec<&str> = page.lines().map(str::trim).collect();
    let counted =
        report.lines().filter(|line| ["left: ", "right: ", "again by: "].iter().any(|part| line.contains(part)));
    for line in counted.map(str::trim) {
        assert!(page.contains(&line), "the page lacks {line:?} of\n{report}");
    }
}

#[test]
fn the_bugs_of_the_page_are_found_one_after_the_other() {
    let first = report(Mended { server: false, client: false });
    assert!(first.contains("each call counts once") && first.contains("DAPPLE_SIM_SEED="), "{first}");
    is_on_the_page(&first);
    let second = report(Mended { server: true, client: false });
    assert!(second.contains("each call counts once") && second.contains("left: 19"), "{second}");
    is_on_the_page(&second);
    check("each_call_counts_once", 200, |sim| counting(sim, Mended { server: true, client: true }));
}

#[test]
fn each_line_of_a_plan_on_the_page_is_read() {
    let page = include_str!("../../../../docs/simulation.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("at 1s, for ")).collect();
    assert_eq!(lines.len(), 20);
    for line in lines {
        assert_eq!(line.parse::<Plan>().unwrap().to_string(), format!("0: {line}\n"));
    }
}
