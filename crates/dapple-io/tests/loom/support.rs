//! The shared parts of the models.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Runs a model in all interleavings with at most this many preemptions, and prints their number.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A thread that waits in vain checks this often before loom gives up.
    builder.max_branches = 3_000;
    let started = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions in {:?}", executions.load(Ordering::Relaxed), started.elapsed());
}

/// Data that one thread writes and another one reads. Not synchronized: loom fails the model if the
/// write does not happen before the read.
#[derive(Clone)]
pub(crate) struct Parcel(Arc<UnsafeCell<u32>>);

// SAFETY: loom checks it.
unsafe impl Send for Parcel {}
// SAFETY: as above.
unsafe impl Sync for Parcel {}

impl Parcel {
    pub(crate) fn new() -> Parcel {
        Parcel(Arc::new(UnsafeCell::new(0)))
    }

    pub(crate) fn write(&self, value: u32) {
        // SAFETY: see the struct.
        self.0.with_mut(|parcel| unsafe { *parcel = value });
    }

    pub(crate) fn read(&self) -> u32 {
        // SAFETY: see the struct.
        self.0.with(|parcel| unsafe { *parcel })
    }
}

/// A flag that orders nothing.
#[derive(Clone)]
pub(crate) struct Flag(Arc<loom::sync::atomic::AtomicUsize>);

impl Flag {
    pub(crate) fn new() -> Flag {
        Flag(Arc::new(loom::sync::atomic::AtomicUsize::new(0)))
    }

    pub(crate) fn set(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest value, as a read-modify-write sees it.
    pub(crate) fn is_set(&self) -> bool {
        self.0.fetch_add(0, Ordering::Relaxed) > 0
    }

    /// A waker that sets it.
    pub(crate) fn waker(&self) -> Waker {
        struct Set(Flag);
        impl Wake for Set {
            fn wake(self: Arc<Self>) {
                self.0.set();
            }
        }
        Waker::from(Arc::new(Set(self.clone())))
    }
}

/// Threads of the model wait here until it is open.
#[derive(Clone)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }
}

/// A waker that opens one gate, and then waits at the other.
pub(crate) fn gated_waker(opens: &Gate, passes: &Gate) -> Waker {
    struct Gated(Gate, Gate);
    impl Wake for Gated {
        fn wake(self: Arc<Self>) {
            self.0.open();
            self.1.pass();
        }
    }
    Waker::from(Arc::new(Gated(opens.clone(), passes.clone())))
}

/// Lets a thread of the model wait for a future.
struct Signal(Mutex<bool>, Condvar);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(signal.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = signal.0.lock().unwrap();
        while !*woken {
            woken = signal.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Polls once.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) use thread::spawn;
