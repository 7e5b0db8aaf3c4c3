//! Foreign code that panics deep inside the scheduler: what its thread was in the middle of is put right again.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use dapple_sched::{Color, Colored, Driver, Runtime, when};

use crate::support::{LONG, collector, occupy};

/// A waker of another executor.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A runtime that does not print panics.
fn quiet() -> Runtime {
    Runtime::builder().workers(1).panic_handler(|_| ()).build().unwrap()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        thread::yield_now();
    }
}

/// Fills the stack with what is no pointer.
#[inline(never)]
fn overwrite_stack() -> u64 {
    let mut words = [0_u64; 4096];
    for (at, word) in words.iter_mut().enumerate() {
        *word = 0x4141_4141_4141_4141 ^ std::hint::black_box(at as u64 & 1);
    }
    std::hint::black_box(&words).iter().fold(0, |all, word| all ^ word)
}

#[test]
fn no_deferred_color_is_lost_where_a_waker_panics() {
    let runtime = quiet();
    let (a, b, c) = {
        let _entered = runtime.enter();
        let state = || Colored::with_color((), &Color::new());
        (state(), state(), state())
    };
    runtime.shutdown(Duration::ZERO);
    let (inside_tx, inside_rx) = channel();
    let (polled_tx, polled_rx) = channel();
    let (over_tx, over_rx) = channel::<()>();
    let other = thread::spawn({
        let (a, b) = (a.clone(), b.clone());
        move || {
            inside_rx.recv().unwrap();
            let mut both = Box::pin(when((&a, &b)).with(|_| ()));
            let waker = Waker::from(Arc::new(Bomb));
            assert!(both.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            polled_tx.send(()).unwrap();
            over_rx.recv_timeout(LONG).unwrap();
        }
    });
    // Letting go of `a` grants it to the other thread, whose waker panics.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let inside = || {
            inside_tx.send(()).unwrap();
            polled_rx.recv_timeout(LONG).unwrap();
        };
        a.try_with(|()| inside()).unwrap();
    }));
    overwrite_stack();
    // The next color of a stopped runtime that this thread lets go of with something in it.
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Count(dropped.clone());
    c.try_with(|()| c.post(move |()| drop(count))).unwrap();
    assert_eq!(dropped.load(Relaxed), 1);
    over_tx.send(()).unwrap();
    other.join().unwrap();
    for state in [&a, &b, &c] {
        assert_eq!(state.try_with(|()| ()), Ok(()), "what was granted is given back");
    }
}

#[test]
fn light_tasks_end_where_the_end_of_one_panics() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let busy = Color::new();
    let gate = occupy(&busy);
    let dropped = Arc::new(AtomicUsize::new(0));
    let light = || {
        let count = Count(dropped.clone());
        runtime.spawn(async move {
            let _count = count;
            std::future::pending::<()>().await;
        })
    };
    // Queued, as the worker is busy; the color of the second one is held until its turn comes.
    let tasks = [light(), light(), light()];
    let (its, other) = (Colored::with_color((), tasks[1].color()), Colored::new(()));
    let mut both = Box::pin(when((&its, &other)).with(|_| ()));
    let waker = Waker::from(Arc::new(Bomb));
    assert!(both.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(_entered);
    let stopping = thread::spawn(move || runtime.shutdown(Duration::ZERO));
    wait_until("the runtime does not stop", || busy.try_post(|| ()).is_err());
    gate.open();
    stopping.join().unwrap();
    // The wait was granted the color of the second task.
    drop(both);
    // The worker may have been left behind by the shutdown, on a machine that did not let it run.
    wait_until("the worker has lost tasks", || {
        dropped.load(Relaxed) == 3 && tasks.iter().all(|task| task.is_finished())
    });
}

/// Parks threads; the first few times something panics in there, as foreign code may that is called for an event.
struct PanicsInPark {
    threads: [OnceLock<Thread>; 2],
    left: Mutex<usize>,
}

impl Driver for PanicsInPark {
    fn attach(&self, worker: usize) {
        let _ = self.threads[worker].set(thread::current());
    }

    fn park(&self, _worker: usize, timeout: Option<Duration>) {
        let left = {
            let mut left = self.left.lock().unwrap();
            *left = left.saturating_sub(1);
            *left
        };
        assert_eq!(left, 0, "in an event");
        match timeout {
            Some(timeout) => thread::park_timeout(timeout),
            None => thread::park(),
        }
    }

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, worker: usize) {
        if let Some(thread) = self.threads[worker].get() {
            thread.unpark();
        }
    }

    fn shutdown(&self) {}
}

#[test]
fn c6_holds_after_a_panic_in_the_driver() {
    let driver = Arc::new(PanicsInPark { threads: [const { OnceLock::new() }; 2], left: Mutex::new(8) });
    let made = driver.clone();
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).driver(move |_| Ok(made)).build().unwrap();
    wait_until("the workers do not sleep", || *driver.left.lock().unwrap() == 0 && runtime.handle().all_asleep());
    let (tx, ran) = collector();
    let busy = runtime.handle().new_color_at(0);
    let gate = crate::support::Gate::default();
    let inside = gate.clone();
    busy.post(move || {
        Color::new().post(move || tx.send(()).unwrap());
        inside.wait();
    });
    ran.next();
    gate.open();
}
