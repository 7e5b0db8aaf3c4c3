//! The builder's settings of how workers share their time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use dapple_sched::{Builder, Color, Driver, Runtime};

use crate::support::{LONG, collector, occupy};

#[test]
fn a_setting_out_of_range_is_refused_when_the_runtime_is_built() {
    let bad: [fn(Builder) -> Builder; 8] = [
        |builder| builder.poll_interval(Duration::ZERO),
        |builder| builder.poll_interval(Duration::from_micros(1_001)),
        |builder| builder.time_slice(Duration::from_micros(49)),
        |builder| builder.time_slice(Duration::MAX),
        |builder| builder.event_share(0),
        |builder| builder.event_share(100),
        |builder| builder.workers(0),
        |builder| builder.workers(1_025),
    ];
    for set in bad {
        let error = set(Runtime::builder()).build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("choose "), "{error}");
    }
    let micros = Duration::from_micros;
    for (poll, slice, share) in [(10, 50, 1), (1_000, 1_000, 99)] {
        let builder = Runtime::builder().poll_interval(micros(poll)).time_slice(micros(slice)).event_share(share);
        let runtime = builder.build().unwrap();
        assert_eq!(runtime.block_on(runtime.spawn(async { 6 * 7 })).unwrap(), 42);
    }
}

#[test]
fn events_have_the_share_of_turns_that_was_set() {
    for (share, first_of_four) in [(25, 1), (50, 2), (75, 3)] {
        let runtime = Runtime::builder().workers(1).event_share(share).build().unwrap();
        let _entered = runtime.enter();
        let (tx, seen) = collector();
        let (gate, inside) = (occupy(&Color::new()), tx.clone());
        let send = |from_outside: bool, tx: &Sender<bool>| {
            let tx = tx.clone();
            move || tx.send(from_outside).unwrap()
        };
        // Posts of a callback are not from outside. It goes first, and keeps its worker until the
        // rest is posted.
        let (last, posted) = (crate::support::Gate::default(), collector());
        let (wait, tell) = (last.clone(), posted.0);
        Color::new().post(move || {
            (0..ROUNDS).for_each(|_| Color::new().post(send(false, &inside)));
            tell.send(()).unwrap();
            wait.wait();
        });
        gate.open();
        posted.1.next();
        (0..ROUNDS).for_each(|_| Color::new().post(send(true, &tx)));
        drop(tx);
        last.open();
        let seen = seen.all();
        // Until one kind has run out.
        for four in seen.chunks(4).take(ROUNDS / 4) {
            assert_eq!(four.iter().filter(|&&outside| outside).count(), first_of_four, "{share} %: {seen:?}");
        }
    }
}

#[test]
fn a_turn_ends_with_the_time_slice_that_was_set() {
    // Each callback takes longer than the slice, so that two colors take turns; with the default,
    // three of each would run.
    let runtime = Runtime::builder().workers(1).time_slice(Duration::from_micros(50)).build().unwrap();
    let _entered = runtime.enter();
    let (tx, seen) = collector();
    let gate = occupy(&Color::new());
    for color in 0..2 {
        let posts = Color::new();
        for _ in 0..ROUNDS {
            let tx = tx.clone();
            posts.post(move || {
                spin(Duration::from_micros(150));
                tx.send(color).unwrap();
            });
        }
    }
    drop(tx);
    gate.open();
    let seen = seen.all();
    // Except the first two, because a color that has used up its slice no longer counts as from
    // outside; and except the last.
    assert!(seen[1..seen.len() - 1].windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
}

/// A driver that counts its polls.
#[derive(Default)]
struct Counting {
    polls: AtomicU64,
}

impl Driver for Counting {
    fn park(&self, _worker: usize, _timeout: Option<Duration>) {
        std::thread::sleep(Duration::from_micros(100));
    }

    fn poll(&self, _worker: usize) -> bool {
        self.polls.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn unpark(&self, _worker: usize) {}

    fn shutdown(&self) {}
}

/// How often a worker has polled the driver while it ran callbacks of 20 us, and how long they
/// took.
fn polls_beside_work(interval: Duration) -> (u64, Duration) {
    let driver = Arc::new(Counting::default());
    let made = driver.clone();
    let builder = Runtime::builder().workers(1).driver(move |_| Ok(made)).poll_interval(interval);
    let runtime = builder.build().unwrap();
    let _entered = runtime.enter();
    let gate = occupy(&Color::new());
    let (tx, measured) = std::sync::mpsc::channel();
    let begun = Arc::new(std::sync::OnceLock::new());
    for number in 0..CALLBACKS {
        let (tx, driver, begun) = (tx.clone(), driver.clone(), begun.clone());
        Color::new().post(move || {
            let polls = driver.polls.load(Ordering::Relaxed);
            let (polls_before, since) = *begun.get_or_init(|| (polls, Instant::now()));
            spin(Duration::from_micros(20));
            if number == CALLBACKS - 1 {
                tx.send((driver.polls.load(Ordering::Relaxed) - polls_before, since.elapsed())).unwrap();
            }
        });
    }
    gate.open();
    measured.recv_timeout(LONG).expect("all callbacks run")
}

#[test]
fn a_busy_worker_polls_as_often_as_was_set() {
    let (polls, took) = polls_beside_work(Duration::from_millis(1));
    assert!(u128::from(polls) <= took.as_millis() + 1, "{polls} in {took:?}");
    let (polls, took) = polls_beside_work(Duration::from_micros(10));
    assert!(polls >= CALLBACKS / 2, "{polls} in {took:?}");
}

fn spin(how_long: Duration) {
    let since = Instant::now();
    while since.elapsed() < how_long {
        std::hint::spin_loop();
    }
}

const ROUNDS: usize = 40;

const CALLBACKS: u64 = 200;
