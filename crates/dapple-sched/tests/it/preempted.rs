//! If a worker has lost its processor to other threads, it does not count as in a long callback.
//! Colors taken from a worker in a long callback go home again. The driver here answers in the
//! kernel's place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use dapple_sched::{Color, Colored, Driver, Handle, Runtime};

use crate::support::{Gate, LONG};

/// The worker that the driver reports on. The other one has the lower index, to which colors move
/// by themselves.
const VICTIM: usize = 1;

/// The driver's answer about the victim's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// None: the monitor has to wait for an answer.
    Later,
    /// It is ready to run, for this many checks; then no answer.
    Runnable(u32),
    /// It waits in a system call.
    Blocked,
}

struct Kernel {
    threads: [OnceLock<Thread>; 2],
    says: Mutex<Says>,
    said: Condvar,
    /// How often the other worker has polled the victim's events.
    visits: AtomicU64,
}

impl Kernel {
    fn new() -> Arc<Kernel> {
        Arc::new(Kernel {
            threads: Default::default(),
            says: Mutex::new(Says::Later),
            said: Condvar::new(),
            visits: AtomicU64::new(0),
        })
    }

    fn say(&self, what: Says) {
        *self.says.lock().unwrap() = what;
        self.said.notify_all();
    }

    fn wait_until(&self, holds: impl Fn(Says) -> bool) -> MutexGuard<'_, Says> {
        let says = self.says.lock().unwrap();
        let (says, timeout) = self.said.wait_timeout_while(says, LONG, |says| !holds(*says)).unwrap();
        assert!(!timeout.timed_out(), "the monitor does not ask");
        says
    }
}

impl Driver for Kernel {
    fn attach(&self, worker: usize) {
        self.threads[worker].set(thread::current()).unwrap();
    }

    fn park(&self, _worker: usize, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => thread::park_timeout(timeout),
            None => thread::park(),
        }
    }

    fn poll(&self, worker: usize) -> bool {
        let own = self.threads[worker].get().unwrap().id() == thread::current().id();
        self.visits.fetch_add(u64::from(worker == VICTIM && !own), Relaxed);
        false
    }

    fn unpark(&self, worker: usize) {
        if let Some(thread) = self.threads[worker].get() {
            thread.unpark();
        }
    }

    fn cpu_time(&self, _worker: usize) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn is_runnable(&self, worker: usize) -> Option<bool> {
        if worker != VICTIM {
            return Some(true);
        }
        // Gives the other worker time to do something wrong; if it is correct, it does nothing that
        // the test could wait for.
        thread::sleep(Duration::from_millis(1));
        let mut says = self.wait_until(|says| !matches!(says, Says::Later | Says::Runnable(0)));
        if let Says::Runnable(looks) = &mut *says {
            *looks -= 1;
            self.said.notify_all();
        }
        Some(*says != Says::Blocked)
    }

    fn shutdown(&self) {}
}

/// A color at home on the victim, with far more traffic there than its callbacks take; everything
/// else on the victim is pinned. Twenty callbacks, which record where they run, wait in it after
/// one that waits for the gate.
fn behind_a_callback(handle: &Handle, kernel: &Kernel) -> (Color, mpsc::Receiver<Option<usize>>, Gate) {
    let (color, host) = (handle.new_color_at(VICTIM), handle.pinned_color(VICTIM));
    let state = Colored::with_color((), &color);
    let (tx, rx) = mpsc::channel();
    let (held, all_held) = mpsc::channel();
    // In short turns: a worker with long turns is behind, and thieves may take everything that
    // waits there.
    for _ in 0..410 {
        let (state, held) = (state.clone(), held.clone());
        host.post(move || {
            (0..20).for_each(|_| state.try_with(|()| ()).unwrap());
            held.send(()).unwrap();
        });
        all_held.recv_timeout(LONG).unwrap();
    }
    let gate = Gate::default();
    let (inside, posted_to) = (gate.clone(), color.clone());
    let (posted, all_posted) = mpsc::channel();
    host.post(move || {
        for _ in 0..20 {
            let tx = tx.clone();
            posted_to.post(move || tx.send(Handle::current().worker_index()).unwrap());
        }
        posted.send(()).unwrap();
        inside.wait();
    });
    all_posted.recv_timeout(LONG).unwrap();
    kernel.say(Says::Runnable(20));
    (color, rx, gate)
}

fn runtime(kernel: &Arc<Kernel>) -> Runtime {
    let driver = kernel.clone();
    Runtime::builder().workers(2).driver(move |_| Ok(driver)).build().unwrap()
}

#[test]
fn c6_a_preempted_worker_keeps_what_is_not_worth_moving() {
    let kernel = Kernel::new();
    let runtime = runtime(&kernel);
    let (color, ran_on, gate) = behind_a_callback(runtime.handle(), &kernel);
    drop(kernel.wait_until(|says| says == Says::Runnable(0)));
    assert_eq!(color.stats().stolen, 0, "visits of the other worker: {}", kernel.visits.load(Relaxed));
    // As far as the scheduler can see, the turn ends after a time in which other threads had the
    // processor.
    gate.open();
    (0..20).for_each(|_| assert_eq!(ran_on.recv_timeout(LONG).unwrap(), Some(VICTIM)));
    kernel.say(Says::Blocked);
}

#[test]
fn c6_a_blocked_worker_gets_back_what_was_not_worth_moving() {
    let kernel = Kernel::new();
    let runtime = runtime(&kernel);
    let (color, ran_on, gate) = behind_a_callback(runtime.handle(), &kernel);
    kernel.say(Says::Blocked);
    (0..20).for_each(|_| assert_eq!(ran_on.recv_timeout(LONG).unwrap(), Some(1 - VICTIM)));
    assert_eq!((color.stats().stolen, color.stats().home), (1, 1 - VICTIM));
    // From here on the monitor marks no worker.
    kernel.say(Says::Later);
    let again = || {
        let (tx, rx) = mpsc::channel();
        color.post(move || tx.send(()).unwrap());
        rx.recv_timeout(LONG).unwrap();
    };
    // The callback is not over: the color stays.
    (0..200).for_each(|_| again());
    assert_eq!(color.stats().home, 1 - VICTIM);
    gate.open();
    // From here on the victim is no longer late.
    let (tx, rx) = mpsc::channel();
    runtime.handle().pinned_color(VICTIM).post(move || tx.send(()).unwrap());
    rx.recv_timeout(LONG).unwrap();
    let until = Instant::now() + LONG;
    while color.stats().home != VICTIM {
        assert!(Instant::now() < until, "it does not go home: {:?}", color.stats());
        again();
    }
    kernel.say(Says::Blocked);
}
