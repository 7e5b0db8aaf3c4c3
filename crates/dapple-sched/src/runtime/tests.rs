//! Building a runtime when a thread cannot be started.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::color::rights::FifoGuard;
use crate::runtime::driver::ThreadDriver;

/// Counts its remaining parts.
struct Counting {
    threads: ThreadDriver,
    shut_down: AtomicUsize,
    /// Gone with the driver.
    _alive: Sender<()>,
}

impl Driver for Counting {
    fn attach(&self, worker: usize) {
        self.threads.attach(worker);
    }

    fn park(&self, worker: usize, timeout: Option<Duration>) {
        self.threads.park(worker, timeout);
    }

    fn poll(&self, worker: usize) -> bool {
        self.threads.poll(worker)
    }

    fn unpark(&self, worker: usize) {
        self.threads.unpark(worker);
    }

    fn shutdown(&self) {
        self.shut_down.fetch_add(1, Relaxed);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        assert_eq!(*self.shut_down.get_mut(), 1, "it is shut down once");
    }
}

/// Starts this many threads, and then fails. A clone of `alive` lives as long as each thread.
fn start(at_most: usize, alive: Sender<()>) -> impl Fn(thread::Builder, Run) -> io::Result<thread::JoinHandle<()>> {
    let started = AtomicUsize::new(0);
    move |thread, run| {
        if started.fetch_add(1, Relaxed) == at_most {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let alive = alive.clone();
        thread.spawn(move || {
            run();
            drop(alive);
        })
    }
}

/// All owners of the other end have been dropped.
fn assert_gone(alive: &Receiver<()>) {
    assert_eq!(alive.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
}

#[test]
fn a_build_that_fails_leaves_nothing_behind() {
    // The third of the three threads is the monitor's.
    for at_most in 0..3 {
        let (threads_alive, threads) = channel();
        let (driver_alive, drivers) = channel();
        let driver = |workers| {
            let threads = ThreadDriver::new(workers);
            Ok(Arc::new(Counting { threads, shut_down: AtomicUsize::new(0), _alive: driver_alive }) as Arc<dyn Driver>)
        };
        let builder = Runtime::builder().workers(2).driver(driver);
        let error = builder.build_by(start(at_most, threads_alive)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("a thread of the runtime cannot be started"), "{error}");
        assert_gone(&threads);
        assert_gone(&drivers);
    }
}

#[test]
fn posts_of_a_policy_meanwhile_are_dropped() {
    struct Count(Sender<()>);
    let (tx, dropped) = channel();
    let tx = Mutex::new(Some(tx));
    let policy = move |_| {
        // The second worker never starts.
        let count = Count(tx.lock().unwrap().take().expect("one worker starts"));
        let color = Handle::current().pinned_color(1);
        color.post(move || drop(count.0));
        Box::new(crate::SeededRandom::new(1)) as Box<dyn Policy>
    };
    let (alive, _threads) = channel();
    let builder = Runtime::builder().workers(2).policy(policy);
    assert!(builder.build_by(start(1, alive)).is_err());
    assert_gone(&dropped);
}

/// The counters of the recent past are halved every 64 callbacks, even if each turn ends early.
#[test]
fn posts_of_a_color_are_forgotten_however_its_turns_end() {
    for ends_early in [false, true] {
        let runtime = crate::Runtime::builder().workers(1).build().unwrap();
        let _entered = runtime.enter();
        let (color, other) = (crate::Color::new(), crate::Color::new());
        let mut posts_out = 0;
        for _ in 0..2_000 {
            let (tx, rx) = std::sync::mpsc::channel();
            let (this, other) = (color.clone(), other.clone());
            color.post(move || {
                other.post(|| ());
                if ends_early {
                    crate::count_time(std::time::Duration::from_millis(50));
                }
                // SAFETY: a callback of the color.
                tx.send(unsafe { FifoGuard::new(this.alive()) }.posts_out()).unwrap();
            });
            posts_out = rx.recv().unwrap();
        }
        assert!(posts_out <= 256, "{posts_out} of 127 callbacks at most");
    }
}
