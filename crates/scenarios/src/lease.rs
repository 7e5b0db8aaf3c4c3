//! Leases: the holder of one uses a resource, and no other client does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use dapple_sched::{Colored, environment};
use dapple_sim::net::{TcpListener, TcpStream};
use dapple_sim::time::{Instant, sleep, timeout};
use dapple_sim::{Faults, Simulation};

use crate::Scenario;
use crate::disk::Log;

pub(crate) const LEASE: Scenario = Scenario {
    name: "lease",
    holds: "after the next holder of a lease has used the resource, the one before does not",
    setup: |sim| lease(sim, None),
    bugs: &[
        ("a lease begins when the answer arrives", |sim| lease(sim, Some(Bug::FromAnswer))),
        ("the holder looks at its lease once for several uses", |sim| lease(sim, Some(Bug::LooksOnce))),
        ("the holder goes by the wall clock", |sim| lease(sim, Some(Bug::WallClock))),
        ("the server grants at once after a crash", |sim| lease(sim, Some(Bug::GrantsAtOnce))),
        ("the numbers of leases begin anew after a crash", |sim| lease(sim, Some(Bug::NumbersAgain))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    FromAnswer,
    LooksOnce,
    WallClock,
    GrantsAtOnce,
    NumbersAgain,
}

/// How long a lease lasts.
const LASTS: Duration = Duration::from_secs(2);

fn lease(sim: &mut Simulation, bug: Option<Bug>) {
    let numbers: Log<u64> = Log::new();
    sim.host("server", move || serve(numbers.clone(), bug));
    // The number of the last lease with which the resource was used.
    let used = Arc::new(AtomicU64::new(0));
    for client in 0..3 {
        let used = used.clone();
        sim.client(&format!("client{client}"), move || {
            let used = used.clone();
            async move {
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(40) {
                    hold(&used, bug).await;
                    sleep(Duration::from_millis(environment::random() % 500)).await;
                }
            }
        });
    }
    let mut faults = Faults::new(Duration::from_secs(30)).crash("server").latency("server", 1_000).at_most(10);
    for client in ["client0", "client1", "client2"] {
        faults = faults.freeze(client).cut(client, "server").wall_clock(client, Duration::from_secs(10));
    }
    sim.faults(&faults);
}

/// Grants leases, one at a time, each with a higher number than the one before.
async fn serve(numbers: Log<u64>, bug: Option<Bug>) {
    let mut number = numbers.open().last().copied().unwrap_or(0);
    if bug == Some(Bug::NumbersAgain) {
        number = 0;
    }
    let free_at = Instant::now() + if bug == Some(Bug::GrantsAtOnce) { Duration::ZERO } else { LASTS };
    let state = Colored::new((number, free_at));
    let listener = TcpListener::bind("0.0.0.0:80").unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, numbers) = (state.clone(), numbers.clone());
        let _detached = dapple_sched::spawn(async move {
            if stream.read_exact(&mut [0]).await.is_err() {
                return;
            }
            let granted = state
                .with(move |(number, free_at)| {
                    if Instant::now() < *free_at {
                        return 0;
                    }
                    (*number, *free_at) = (*number + 1, Instant::now() + LASTS);
                    numbers.append(*number);
                    numbers.sync();
                    *number
                })
                .await;
            let _ = stream.write_all(&granted.to_be_bytes()).await;
            // Until the client has read it.
            let _ = timeout(LASTS, stream.read(&mut [0])).await;
        });
    }
}

/// Asks for a lease, and uses the resource for as long as it lasts.
async fn hold(used: &AtomicU64, bug: Option<Bug>) {
    let asked_at = Instant::now();
    let Ok(Ok(number)) = timeout(LASTS * 4, ask()).await else { return };
    if number == 0 {
        return;
    }
    let begins = if bug == Some(Bug::FromAnswer) { Instant::now() } else { asked_at };
    // The server's clock may be a little faster.
    let lease = Lease { ends: begins + LASTS * 9 / 10, wall_ends: wall_after(LASTS * 9 / 10), bug };
    while lease.holds() {
        for _ in 0..5 {
            if bug == Some(Bug::LooksOnce) || lease.holds() {
                let before = used.fetch_max(number, Relaxed);
                assert!(before <= number, "lease {number} was used after lease {before}");
            }
            sleep(Duration::from_millis(environment::random() % 100)).await;
        }
    }
}

struct Lease {
    ends: Instant,
    wall_ends: SystemTime,
    bug: Option<Bug>,
}

impl Lease {
    fn holds(&self) -> bool {
        match self.bug {
            Some(Bug::WallClock) => environment::system_now() < self.wall_ends,
            _ => Instant::now() < self.ends,
        }
    }
}

fn wall_after(duration: Duration) -> SystemTime {
    environment::system_now() + duration
}

async fn ask() -> io::Result<u64> {
    let stream = TcpStream::connect("server:80").await?;
    stream.write_all(&[1]).await?;
    let mut number = [0; 8];
    stream.read_exact(&mut number).await?;
    Ok(u64::from_be_bytes(number))
}
