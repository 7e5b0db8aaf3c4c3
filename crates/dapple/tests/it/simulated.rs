//! `#[dapple::test(sim)]`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::sim::Simulation;
use dapple::time::{Instant, sleep};

static RUNS: AtomicU64 = AtomicU64::new(0);

#[dapple::test(sim, seeds = 20)]
async fn half_an_hour_takes_no_time() {
    let start = Instant::now();
    sleep(Duration::from_secs(1800)).await;
    assert!(start.elapsed() >= Duration::from_secs(1800));
    RUNS.fetch_add(1, Relaxed);
}

#[test]
fn each_seed_runs_and_the_first_three_run_twice() {
    let before = RUNS.load(Relaxed);
    half_an_hour_takes_no_time();
    assert!(RUNS.load(Relaxed) - before >= 23, "another thread may run it at the same time");
}

async fn echo() {
    let listener = TcpListener::bind("0.0.0.0:7").unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        dapple::spawn(async move {
            let mut buf = [0; 16];
            while let Ok(len @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..len]).await.unwrap();
            }
        });
    }
}

#[dapple::test(sim, seeds = 10)]
fn two_hosts_talk(sim: &mut Simulation) {
    sim.host("server", echo);
    sim.client("client", || async {
        let stream = TcpStream::connect("server:7").await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello");
    });
}

#[dapple::test(sim, seeds = 2)]
#[should_panic(expected = "ConnectionRefused")]
async fn an_error_fails_the_test() -> io::Result<()> {
    TcpStream::connect("client:9").await?;
    Ok(())
}

#[dapple::test(sim)]
#[should_panic(
    expected = "again by: DAPPLE_SIM_SEED=1 DAPPLE_SIM_FAULTS= cargo test the_report_says_how_to_see_it_again"
)]
async fn the_report_says_how_to_see_it_again() {
    panic!("on purpose");
}
