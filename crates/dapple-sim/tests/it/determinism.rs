//! The same seed gives the same trace.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{Colored, environment, spawn, yield_now};
use dapple_sim::net::{TcpListener, TcpStream, UdpSocket};
use dapple_sim::time::{sleep, timeout};
use dapple_sim::{Faults, Simulation, run_seed};

/// A bit of everything, under every fault.
fn everything(sim: &mut Simulation) {
    for name in ["a", "b", "c"] {
        sim.host(name, || async {
            let count = Colored::new(0_u64);
            let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
            let (counted, datagrams) = (
                count.clone(),
                spawn(async move {
                    let mut bytes = [0; 16];
                    while let Ok((len, from)) = socket.recv_from(&mut bytes).await {
                        let _ = socket.send_to(&bytes[..len], from).await;
                    }
                }),
            );
            let listener = TcpListener::bind("0.0.0.0:7").unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let count = counted.clone();
                let _detached = spawn(async move {
                    let mut bytes = [0; 100];
                    while let Ok(len) = stream.read(&mut bytes).await {
                        count.with(|count| *count += len as u64).await;
                        yield_now().await;
                        if len == 0 || stream.write_all(&bytes[..len]).await.is_err() {
                            return;
                        }
                    }
                });
            }
            drop(datagrams);
        });
    }
    sim.client("client", || async {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for round in 0..40_u64 {
            let to = ["a", "b", "c"][(environment::random() % 3) as usize];
            let _ = socket.send_to(&round.to_be_bytes(), (to, 9)).await;
            let talk = async {
                let stream = TcpStream::connect((to, 7)).await?;
                stream.write_all(&[7; 1_000]).await?;
                stream.read_exact(&mut [0; 1_000]).await
            };
            let _ = timeout(Duration::from_secs(2), talk).await;
            let mut bytes = [0; 16];
            let _ = timeout(Duration::from_millis(1), socket.recv_from(&mut bytes)).await;
            sleep(Duration::from_millis(environment::random() % 500)).await;
        }
    });
    let faults = Faults::new(Duration::from_secs(20)).crash("a").freeze("b").cut("client", "c").isolate("a").reset("c");
    sim.faults(&faults.at_most(10));
}

#[test]
fn each_seed_has_one_trace() {
    let mut hashes = Vec::new();
    for seed in 1..=15 {
        let (first, second) = (run_seed(seed, &everything), run_seed(seed, &everything));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.failure, None, "{first}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 15, "each seed has another one");
}

#[test]
fn another_thread_makes_no_difference() {
    let here = run_seed(7, &everything);
    let there = std::thread::spawn(|| run_seed(7, &everything)).join().unwrap();
    assert_eq!(here, there);
}

#[test]
fn a_world_that_is_seen_from_outside_is_the_same() {
    let run = || {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let inside = seen.clone();
        let mut sim = Simulation::new(11);
        sim.workers(3);
        sim.client("client", move || {
            let seen = inside.clone();
            async move {
                let tasks: Vec<_> = (0..50)
                    .map(|number| {
                        let seen = seen.clone();
                        spawn(async move {
                            for _ in 0..number % 7 {
                                yield_now().await;
                            }
                            seen.lock().unwrap().push(number);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
        assert_eq!(sim.run().failure, None);
        Arc::try_unwrap(seen).map(|seen| seen.into_inner().unwrap()).unwrap_or_default()
    };
    let first = run();
    assert_eq!(first.len(), 50);
    assert_eq!(first, run());
}

#[test]
fn the_clock_of_the_standard_library_is_that_of_the_host() {
    let outcome = run_seed(1, &|sim: &mut Simulation| {
        sim.client("client", || async {
            let began = std::time::Instant::now();
            assert_eq!(began, environment::now(), "no real time passes");
            sleep(Duration::from_secs(3_000)).await;
            assert_eq!(began.elapsed(), environment::now() - began);
            assert!(began.elapsed() >= Duration::from_secs(3_000));
        });
    });
    assert_eq!(outcome.failure, None);
}

#[test]
fn a_thread_is_refused_with_a_sentence() {
    let spawned = run_seed(1, &|sim: &mut Simulation| {
        sim.client("client", || async { _ = std::thread::spawn(|| {}) });
    });
    let failure = spawned.failure.unwrap();
    assert!(failure.contains("a thread of the program's own cannot be simulated"), "{failure}");
    let caught = run_seed(1, &|sim: &mut Simulation| {
        sim.client("client", || async { _ = std::panic::catch_unwind(|| std::thread::spawn(|| {})) });
    });
    let failure = caught.failure.unwrap();
    assert!(failure.contains("a thread of the program's own cannot be simulated"), "{failure}");
}
