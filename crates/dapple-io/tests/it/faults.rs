//! Foreign code that panics in the middle of the driver's work: its neighbors get their events and
//! timers, and the runtime continues.

use std::future::Future;
use std::io::Write;
use std::os::unix::net::UnixStream as StdStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::blocking::{self, BlockingError, spawn_blocking};
use dapple_io::net::UnixStream;
use dapple_io::signal::signal;
use dapple_io::{Config, time};
use dapple_sched::{Color, Runtime};
use rustix::process::{Signal, getpid, kill_process};

use crate::bombs::{Calls, DropBomb, bomb, counting, drop_bomb, panic_twice};
use crate::clones::on_clone;
use crate::forget::forget;
use crate::{LIMIT, wait_until};

/// A runtime that does not print its panics.
fn quiet(workers: usize, config: Config) -> Runtime {
    let builder = dapple_io::runtime_builder_with(config).workers(workers);
    builder.panic_handler(|_| ()).build().expect("a runtime can be built")
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// A pair of streams; a future with this waker waits for a read of the second.
fn waiting_read(waker: &Waker) -> (StdStream, Pin<Box<dyn Future<Output = std::io::Result<usize>>>>) {
    let (writer, reader) = StdStream::pair().unwrap();
    let reader = UnixStream::from_std(reader).unwrap();
    let mut read = Box::pin(async move { reader.read(&mut [0; 8]).await });
    assert!(poll(read.as_mut(), waker).is_pending());
    (writer, read)
}

/// Keeps a worker busy until the sender is dropped; returns once it is.
fn occupy(color: &Color) -> std::sync::mpsc::Sender<()> {
    let (begun_tx, begun) = channel();
    let (tx, rx) = channel();
    color.post(move || {
        begun_tx.send(()).unwrap();
        let _ = rx.recv();
    });
    begun.recv_timeout(LIMIT).unwrap();
    tx
}

/// The other worker helps a worker in a long callback: C6 is on.
fn assert_c6(runtime: &Runtime) {
    let (tx, rx) = channel();
    let (end_tx, end) = channel::<()>();
    runtime.handle().new_color_at(0).post(move || {
        Color::new().post(move || tx.send(()).unwrap());
        let _ = end.recv();
    });
    rx.recv_timeout(LIMIT).expect("no worker helps the busy one");
    drop(end_tx);
}

#[test]
fn a_batch_of_events_survives_wakers_that_panic() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet(1, Config::default());
        let _entered = runtime.enter();
        let (calls, waker) = counting();
        let mut pairs: Vec<_> = (0..9).map(|n| waiting_read(&if n % 3 == 0 { bad() } else { waker.clone() })).collect();
        let busy = occupy(&Color::new());
        pairs.iter_mut().for_each(|(writer, _)| writer.write_all(b"x").unwrap());
        drop(busy);
        wait_until("the neighbors are woken", || calls.count() == 6);
        for (_, read) in &mut pairs {
            assert!(matches!(poll(read.as_mut(), Waker::noop()), Poll::Ready(Ok(1))));
        }
    }
}

#[test]
fn neighbors_on_one_descriptor_are_woken_too() {
    let runtime = quiet(1, Config::default());
    let _entered = runtime.enter();
    let (mut writer, reader) = StdStream::pair().unwrap();
    let reader = UnixStream::from_std(reader).unwrap();
    let (calls, waker) = counting();
    let (mut one, mut two, mut three) = ([0; 1], [0; 1], [0; 1]);
    let (mut one, mut two, mut three) =
        (pin!(reader.read(&mut one)), pin!(reader.read(&mut two)), pin!(reader.read(&mut three)));
    assert!(poll(one.as_mut(), &bomb()).is_pending());
    assert!(poll(two.as_mut(), &waker).is_pending());
    assert!(poll(three.as_mut(), &drop_bomb()).is_pending());
    writer.write_all(b"xyz").unwrap();
    wait_until("the neighbor is woken", || calls.count() == 1);
    assert!(poll(two.as_mut(), &waker).is_ready());
    // A new waker drops the old one.
    assert!(poll(one.as_mut(), &waker).is_ready() && poll(three.as_mut(), &waker).is_ready());
}

#[test]
fn c6_stays_on_when_wakers_panic_in_a_park() {
    let runtime = quiet(2, Config::default());
    let _entered = runtime.enter();
    assert_c6(&runtime);
    let (calls, waker) = counting();
    for round in 1..5 {
        let (mut bad_writer, _bad) = waiting_read(&bomb());
        let (mut writer, _good) = waiting_read(&waker);
        bad_writer.write_all(b"x").unwrap();
        writer.write_all(b"x").unwrap();
        wait_until("the neighbor is woken", || calls.count() == round);
    }
    for _ in 0..3 {
        assert_c6(&runtime);
    }
}

#[test]
fn timers_fire_next_to_those_with_wakers_that_panic() {
    for bad in [bomb, drop_bomb] {
        // On a busy machine the first timers may be due before the last ones are set: then tries
        // again with more time.
        let mut limits = [20, 200, 2_000, 10_000].map(Duration::from_millis).into_iter();
        assert!(limits.any(|limit| timers_fire_beside(bad, limit)), "the timers were due before they were set");
    }
}

/// False if some were due before all were set.
fn timers_fire_beside(bad: fn() -> Waker, limit: Duration) -> bool {
    let runtime = quiet(1, Config::default());
    let _entered = runtime.enter();
    let (calls, waker) = counting();
    let deadline = time::Instant::now() + limit;
    let mut sleeps: Vec<_> = (0..9).map(|_| Box::pin(time::sleep_until(deadline))).collect();
    for (n, sleep) in sleeps.iter_mut().enumerate() {
        let waker = if n % 3 == 0 { bad() } else { waker.clone() };
        // If the timer is due by now, the first waker is dropped with it, and panics here.
        let first = catch_unwind(AssertUnwindSafe(|| poll(sleep.as_mut(), &drop_bomb()).is_pending()));
        // Another waker replaces the first, which is dropped.
        if !first.unwrap_or(false) || poll(sleep.as_mut(), &waker).is_ready() {
            forget(waker);
            return false;
        }
    }
    wait_until("the neighbors are woken", || calls.count() == 6);
    assert!(sleeps.iter_mut().all(|sleep| poll(sleep.as_mut(), Waker::noop()).is_ready()));
    let mut later = pin!(time::sleep(LIMIT));
    assert!(poll(later.as_mut(), &drop_bomb()).is_pending());
    true
}

#[test]
fn a_standing_clock_goes_on_beside_wakers_that_panic() {
    let mut config = Config::default();
    config.standing_clock = true;
    let runtime = quiet(1, config);
    let _entered = runtime.enter();
    let (calls, waker) = counting();
    let deadline = time::Instant::now() + Duration::from_secs(3600);
    let mut sleeps: Vec<_> = (0..3).map(|_| Box::pin(time::sleep_until(deadline))).collect();
    runtime.block_on(async {
        // The clock stands as long as this runs.
        for (sleep, waker) in sleeps.iter_mut().zip([bomb(), drop_bomb(), waker]) {
            assert!(poll(sleep.as_mut(), &waker).is_pending());
        }
        time::sleep_until(deadline + Duration::from_secs(1)).await;
    });
    assert_eq!(calls.count(), 1);
}

#[test]
fn signals_go_on_beside_a_waker_that_panics() {
    let runtime = quiet(1, Config::default());
    let _entered = runtime.enter();
    for bad in [bomb, drop_bomb] {
        let (mut one, mut two) = (signal(WINDOW_CHANGED).unwrap(), signal(WINDOW_CHANGED).unwrap());
        let (calls, waker) = counting();
        let (mut one, mut two) = (pin!(one.recv()), pin!(two.recv()));
        assert!(poll(one.as_mut(), &bad()).is_pending());
        assert!(poll(two.as_mut(), &waker).is_pending());
        kill_process(getpid(), Signal::WINCH).unwrap();
        wait_until("the neighbor is woken", || calls.count() == 1);
        assert!(poll(two.as_mut(), &waker).is_ready());
    }
}

#[test]
fn the_blocking_pool_survives_what_panics_twice() {
    let mut config = Config::default();
    config.blocking_threads_max = 1;
    let runtime = quiet(1, config);
    let _entered = runtime.enter();
    let failed = runtime.block_on(spawn_blocking(|| -> () { panic_twice() })).unwrap_err();
    assert!(matches!(failed, BlockingError::Panicked(_)), "{failed}");
    // A result that no task takes, and the waker of a joiner.
    let (tx, rx) = channel::<()>();
    drop(spawn_blocking(move || rx.recv()));
    drop(spawn_blocking(|| DropBomb));
    let mut wanted = pin!(spawn_blocking(|| 1));
    assert!(poll(wanted.as_mut(), &bomb()).is_pending());
    drop(tx);
    assert_eq!(runtime.block_on(spawn_blocking(|| 2)).unwrap(), 2);
    assert_eq!(runtime.block_on(wanted).unwrap(), 1);
    let stats = blocking::stats().unwrap();
    assert_eq!((stats.threads, stats.threads_started), (1, 1));
}

#[test]
fn a_shutdown_tells_the_neighbors_of_wakers_that_panic() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet(2, Config::default());
        let entered = runtime.enter();
        let (calls, waker) = counting();
        let mut pairs: Vec<_> = (0..6).map(|n| waiting_read(&if n % 2 == 0 { bad() } else { waker.clone() })).collect();
        let mut sleep = Box::pin(time::sleep(LIMIT));
        assert!(poll(sleep.as_mut(), &drop_bomb()).is_pending());
        drop(entered);
        // A worker that reports panics for a long time counts as stuck, and continues.
        runtime.shutdown(LIMIT);
        wait_until("the neighbors are told", || calls.count() == 3);
        for (_, read) in &mut pairs {
            assert!(matches!(poll(read.as_mut(), Waker::noop()), Poll::Ready(Err(_))));
        }
    }
}

#[test]
fn a_waker_is_cloned_under_no_lock() {
    let (done, is_done) = channel();
    // On a thread of its own: if it waited for itself, the test would not end.
    std::thread::spawn(move || {
        let runtime = quiet(1, Config::default());
        let _entered = runtime.enter();
        let (_writer, reader) = StdStream::pair().unwrap();
        let reader = Arc::new(UnixStream::from_std(reader).unwrap());
        let own = reader.clone();
        let waker = on_clone(move || {
            assert!(poll(pin!(own.read(&mut [0; 1])), Waker::noop()).is_pending());
        });
        assert!(poll(pin!(reader.read(&mut [0; 1])), &waker).is_pending());
        let (calls, _): (Arc<Calls>, _) = counting();
        done.send(calls.count()).unwrap();
    });
    is_done.recv_timeout(LIMIT).expect("a clone waits for a lock that its own thread holds");
}

const WINDOW_CHANGED: i32 = dapple_io::signal::SIGWINCH;
