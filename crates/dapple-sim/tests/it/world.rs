//! Time, the end of a simulation, and what it refuses.

use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::net::{self, UnixListener, UnixStream};
use dapple_io::{fs, pipe, process, signal};
use dapple_sim::Simulation;
use dapple_sim::time::{Instant, sleep};

#[test]
fn a_year_of_sleep_takes_no_time() {
    let mut sim = Simulation::new(1);
    sim.settings(|settings| settings.time_max = Duration::MAX);
    let slept = Arc::new(Mutex::new(Duration::ZERO));
    let inside = slept.clone();
    sim.client("client", move || {
        let slept = inside.clone();
        async move {
            let start = Instant::now();
            sleep(Duration::from_secs(365 * 24 * 3600)).await;
            *slept.lock().unwrap() = start.elapsed();
        }
    });
    let outcome = sim.run();
    assert_eq!(outcome.failure, None);
    assert!(*slept.lock().unwrap() >= Duration::from_secs(365 * 24 * 3600));
    assert!(outcome.steps < 100, "{outcome}");
}

#[test]
fn timers_fire_in_order_and_never_early() {
    let mut sim = Simulation::new(3);
    let order = Arc::new(Mutex::new(Vec::new()));
    let inside = order.clone();
    sim.client("client", move || {
        let order = inside.clone();
        async move {
            let start = Instant::now();
            let tasks: Vec<_> = (0..100_u64)
                .map(|number| {
                    let (order, after) = (order.clone(), Duration::from_millis(number * 37 % 100));
                    dapple_sched::spawn(async move {
                        sleep(after).await;
                        assert!(start.elapsed() >= after);
                        order.lock().unwrap().push(after);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    assert_eq!(sim.run().failure, None);
    let order = order.lock().unwrap();
    assert!(order.len() == 100 && order.is_sorted());
}

#[test]
fn a_panic_of_a_program_or_a_callback_fails_the_simulation() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async { panic!("on purpose") });
    assert!(sim.run().failure.is_some_and(|why| why.contains("client") && why.contains("on purpose")));

    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        dapple_sched::Color::new().post(|| panic!("in a callback"));
        sleep(Duration::from_secs(1)).await;
    });
    assert!(sim.run().failure.is_some_and(|why| why.contains("in a callback")));
}

#[test]
fn what_waits_for_nothing_is_found() {
    let mut sim = Simulation::new(1);
    sim.client("stuck", std::future::pending::<()>);
    assert!(sim.run().failure.is_some_and(|why| why.contains("nothing is to come") && why.contains("stuck")));
}

#[test]
fn an_invariant_that_does_not_hold_fails_the_simulation() {
    let mut sim = Simulation::new(1);
    let count = Arc::new(Mutex::new(0));
    let inside = count.clone();
    sim.client("client", move || {
        let count = inside.clone();
        async move {
            for _ in 0..1_000 {
                *count.lock().unwrap() += 1;
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
    sim.invariant(move || {
        let count = *count.lock().unwrap();
        if count <= 500 { Ok(()) } else { Err(format!("{count} is too much")) }
    });
    assert!(sim.run().failure.is_some_and(|why| why.contains("is too much")));
}

/// A use of the kernel, with its name in the refusal.
type Use = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()> + Send>>);

macro_rules! uses {
    ($($what:literal: $does:expr;)*) => {
        [$(($what, || Box::pin(async { _ = $does.await })),)*]
    };
}

#[test]
fn the_kernel_is_refused_before_anything_happens() {
    let uses: [Use; 21] = uses! {
        "a pipe": async { pipe::pipe() };
        "a Unix socket": async { UnixListener::bind(NOWHERE) };
        "a Unix socket": UnixStream::connect(NOWHERE);
        "a Unix socket": async { UnixStream::pair() };
        "a child process": process::spawn(Command::new("touch"));
        "a socket of the standard library": async { std::net::TcpStream::connect("127.0.0.1:9") };
        "a pair of sockets of the standard library": async { std::os::unix::net::UnixStream::pair() };
        "a pipe of the standard library": async { std::io::pipe() };
        "a signal": async { signal::signal(signal::SIGHUP) };
        "a signal": signal::ctrl_c();
        "a file descriptor": async { net::TcpStream::from_std(OWN.lock().unwrap().take().unwrap()) };
        "a file": fs::canonicalize(NOWHERE);
        "a file": async { fs::metadata("/").await.unwrap().as_std().len() };
        "a file": async { fs::File::create("/x").await.unwrap().as_std().sync_all() };
        "a file": async { fs::File::create("/x").await.unwrap().read_buf_at(0, fs::AlignedBuf::new(1)).await };
        "a file": async { fs::File::create("/x").await.unwrap().write_buf_at(0, fs::AlignedBuf::new(1)).await };
        "a file": async { fs::OpenOptions::new().read(true).direct(true).open(NOWHERE).await };
        "a file": async { fs::OpenOptions::from(std::fs::File::options()).open(NOWHERE).await };
        "a file": fs::read_link(NOWHERE);
        "a file": fs::Dir::open("/");
        "a file": async { fs::read_cached_at(std::io::stdin(), 0, 1) };
    };
    *OWN.lock().unwrap() = Some(own_connection().unwrap());
    for (what, run) in uses {
        let mut sim = Simulation::new(1);
        sim.client("client", run);
        let failure = sim.run().failure.unwrap_or_default();
        assert!(failure.contains(&format!("{what} is the kernel's, and cannot be simulated")), "{what}: {failure}");
        assert!(!std::path::Path::new(NOWHERE).exists(), "{what}");
    }
}

#[test]
fn a_sleep_and_a_look_up_of_the_standard_library_are_refused() {
    let uses: [(&str, fn()); 3] = [
        ("use `dapple::time::sleep`", || std::thread::sleep(Duration::from_nanos(1))),
        ("use `dapple::time::sleep`", || {
            drop(std::panic::catch_unwind(|| std::thread::sleep(Duration::from_nanos(1))))
        }),
        ("use `dapple::net`", || drop(std::net::ToSocketAddrs::to_socket_addrs("localhost:80"))),
    ];
    for (advice, run) in uses {
        for in_pool in [false, true] {
            let mut sim = Simulation::new(1);
            sim.client("client", move || async move {
                match in_pool {
                    false => run(),
                    true => drop(dapple_io::blocking::spawn_blocking(run).await),
                }
            });
            let failure = sim.run().failure.unwrap_or_default();
            assert!(failure.contains(advice), "{advice}: {failure}");
        }
    }
}

/// A connection that was made outside of a simulation.
static OWN: Mutex<Option<std::net::TcpStream>> = Mutex::new(None);

fn own_connection() -> std::io::Result<std::net::TcpStream> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    std::net::TcpStream::connect(listener.local_addr()?)
}

/// A name in a directory that exists; the test makes nothing there.
const NOWHERE: &str = "/tmp/dapple-sim-makes-no-such-thing";

#[test]
fn functions_of_the_blocking_pool_run_in_simulated_time() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let start = Instant::now();
        let tasks: Vec<_> =
            (0..10).map(|number| dapple_io::blocking::spawn_blocking(move || number * number)).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        assert_eq!(sum, 285);
        assert!(start.elapsed() < Duration::from_secs(1));
        let failed = dapple_io::blocking::spawn_blocking(|| panic!("on purpose")).await;
        assert!(failed.is_err());
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn several_workers_take_part() {
    let seen = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let inside = seen.clone();
    dapple_sim::check("workers", 20, move |sim| {
        let seen = inside.clone();
        sim.workers(4);
        sim.client("client", move || {
            let seen = seen.clone();
            async move {
                let tasks: Vec<_> = (0..64)
                    .map(|_| {
                        let seen = seen.clone();
                        dapple_sched::spawn(async move {
                            for _ in 0..10 {
                                seen.lock().unwrap().insert(dapple_sched::Handle::current().worker_index());
                                dapple_sched::yield_now().await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
    });
    assert!(seen.lock().unwrap().len() >= 2, "only {:?} worked", seen.lock().unwrap());
}
