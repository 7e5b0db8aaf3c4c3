//! That a task is polled by one thread at a time rests on a driver's barrier: making one takes an `unsafe impl`.

use dapple_sched::{Barrier, Driver};

struct Liar;

impl Barrier for Liar {
    fn pass(&self) -> bool {
        true
    }
}

impl Driver for Liar {
    fn park(&self, _worker: usize, _timeout: Option<std::time::Duration>) {}

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, _worker: usize) {}

    fn barrier(&self) -> Option<&dyn Barrier> {
        Some(self)
    }

    fn shutdown(&self) {}
}

fn main() {}
