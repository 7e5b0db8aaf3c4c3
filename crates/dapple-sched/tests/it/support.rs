//! The shared parts of the tests.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dapple_sched::{Color, Runtime};

/// Longer than any operation should take on a loaded machine, even under ThreadSanitizer.
pub(crate) const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3_600 } else { 120 });

/// This many, or a hundredth under Miri, which takes a thousand times as long for each.
pub(crate) const fn rounds(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(100) } else { count }
}

/// A runtime without I/O.
pub(crate) fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("threads can be started")
}

/// A gate that callbacks wait at. It blocks a worker, which the platform forbids and a test needs.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }

    pub(crate) fn wait(&self) {
        let open = self.open.0.lock().unwrap();
        let (open, timeout) = self.open.1.wait_timeout_while(open, LONG, |open| !*open).unwrap();
        assert!(*open && !timeout.timed_out(), "the gate was not opened");
    }
}

/// Keeps a color busy until the returned gate is opened; returns once it is.
pub(crate) fn occupy(color: &Color) -> Gate {
    let gate = Gate::default();
    let (tx, rx) = channel();
    let inside = gate.clone();
    color.post(move || {
        tx.send(()).unwrap();
        inside.wait();
    });
    rx.recv_timeout(LONG).expect("the color was not reached");
    gate
}

/// A sender for clones in callbacks, and a receiver that collects their values after all senders
/// were dropped.
pub(crate) fn collector<T>() -> (Sender<T>, Collected<T>) {
    let (tx, rx) = channel();
    (tx, Collected(rx))
}

pub(crate) struct Collected<T>(Receiver<T>);

impl<T> Collected<T> {
    /// Waits until every sender is gone.
    pub(crate) fn all(self) -> Vec<T> {
        let mut all = Vec::new();
        loop {
            match self.0.recv_timeout(LONG) {
                Ok(item) => all.push(item),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return all,
                Err(timeout) => panic!("after {} items: {timeout}", all.len()),
            }
        }
    }

    pub(crate) fn next(&self) -> T {
        self.0.recv_timeout(LONG).expect("nothing came")
    }
}
