//! The program of `docs/simulation.md`, and what the page says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple_sim::net::UdpSocket;
use dapple_sim::time::timeout;
use dapple_sim::{Faults, Plan, Simulation, check};

async fn serve(count: Arc<AtomicU64>) {
    let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
    let mut question = [0; 8];
    loop {
        let Ok((8, from)) = socket.recv_from(&mut question).await else { continue };
        count.fetch_add(1, Relaxed);
        let _ = socket.send_to(&question, from).await;
    }
}

async fn add_one(socket: &UdpSocket, number: u64) {
    let mut answer = [0; 8];
    loop {
        let _ = socket.send_to(&number.to_be_bytes(), "server:9").await;
        if timeout(Duration::from_millis(20), socket.recv_from(&mut answer)).await.is_ok() {
            return;
        }
    }
}

fn counting(sim: &mut Simulation) {
    let count = Arc::new(AtomicU64::new(0));
    let of_server = count.clone();
    sim.host("server", move || serve(of_server.clone()));
    sim.client("client", move || {
        let count = count.clone();
        async move {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 1..=20 {
                add_one(&socket, number).await;
            }
            assert_eq!(count.load(Relaxed), 20, "each call counts once");
        }
    });
    sim.faults(&Faults::new(Duration::from_secs(1)).cut("server", "client").freeze("server"));
}

#[test]
fn the_bug_of_the_page_is_found_and_shrunk() {
    let failed = std::panic::catch_unwind(|| check("each_call_counts_once", 200, counting)).unwrap_err();
    let report = failed.downcast_ref::<String>().expect("a report");
    println!("{report}");
    assert!(report.contains("each call counts once") && report.contains("DAPPLE_SIM_SEED="), "{report}");
}

#[test]
fn each_line_of_a_plan_on_the_page_is_read() {
    let page = include_str!("../../../../docs/simulation.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("at 1s, for ")).collect();
    assert_eq!(lines.len(), 12);
    for line in lines {
        assert_eq!(line.parse::<Plan>().unwrap().to_string(), format!("0: {line}\n"));
    }
}
