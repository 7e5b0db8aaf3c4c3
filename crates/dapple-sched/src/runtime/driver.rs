//! What waits for the kernel, behind one trait; and the one for runtimes without I/O.

use std::any::Any;
use std::sync::OnceLock;
use std::task::RawWakerVTable;
use std::thread::{self, Thread};
use std::time::Duration;

use crate::observe::dump::TaskWait;
use crate::sync::barrier::Membarrier;

/// What workers wait in: one slot per worker. `dapple-io` implements it with epoll, the simulator with its own clock.
///
/// A driver posts what becomes ready when it becomes ready (C2), from inside [`Driver::park`] and [`Driver::poll`]: it
/// wakes tasks and calls callbacks. While it does so on a worker, idle colors move to that worker.
///
/// A method that panics is reported to the panic handler, and the runtime goes on. It must contain what wakers panic with by
/// itself, or their neighbors are not woken.
pub trait Driver: Any + Send + Sync {
    /// Called once by each worker's thread before it does anything else.
    fn attach(&self, worker: usize) {
        let _ = worker;
    }

    /// Blocks the calling worker, whose index is `worker`, until its slot has events or due timers, until
    /// `unpark(worker)`, or for `timeout`; what became ready is dispatched before it returns.
    ///
    /// An unpark that came before makes it return at once. It may return for no reason.
    fn park(&self, worker: usize, timeout: Option<Duration>);

    /// Dispatches what is ready in a slot, without blocking; true if there was anything.
    ///
    /// Called by the slot's own worker between turns, and by others while that worker is in a long callback (C6): it
    /// must be safe from any worker at any time, and skip rather than wait when somebody else is in the slot.
    fn poll(&self, worker: usize) -> bool;

    /// The calling worker rests, as do all from number `active` on, and is about to park. If it waits for events on behalf of others,
    /// one of those that work is to do that from now on. Default: nothing.
    fn rest(&self, worker: usize, active: usize) {
        let _ = (worker, active);
    }

    /// Makes `park(worker)` return. Called from any thread.
    fn unpark(&self, worker: usize);

    /// The way to make all threads of the process pass a memory barrier, if there is one. Default: none.
    ///
    /// With it a worker takes many light tasks from its queue at once, and thieves can still get at them; and it takes its own lock
    /// without a locked instruction.
    fn barrier(&self) -> Option<&dyn Barrier> {
        None
    }

    /// The processor time that the worker's thread has used so far, exact also while it runs; `None` where that is not known.
    ///
    /// The monitor asks for it twice where a worker does not come round while others sleep, to tell a worker in a long callback
    /// from one whose processor another thread of the machine has.
    fn cpu_time(&self, worker: usize) -> Option<Duration> {
        let _ = worker;
        None
    }

    /// Whether the worker's thread has a processor or waits for one, rather than for something in a system call; `None` where
    /// that is not known. Asked only about a worker that has used hardly any [`Driver::cpu_time`] and ended no turn.
    fn is_runnable(&self, worker: usize) -> Option<bool> {
        let _ = worker;
        None
    }

    /// Calls `visit` with the table and the data of each waker that waits in the driver, and with what it waits for; for dumps.
    /// Called from any thread; `visit` takes no lock and calls no waker.
    fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        let _ = visit;
    }

    /// Whether this is the driver of a runtime whose workers the program steps ([`Stepped`](crate::Stepped)): `park` is never called.
    fn is_stepped(&self) -> bool {
        false
    }

    /// All workers have stopped: drops registered callbacks and wakers.
    fn shutdown(&self);

    /// News of a thread that is no worker and runs a future by [`block_on`](crate::block_on), this runtime being current.
    /// A driver whose clock stands still counts such threads, as they may start or wake something at any time.
    fn outside(&self, news: Outside) {
        let _ = news;
    }
}

/// A memory barrier in all threads of the process, such as Linux's `membarrier` ([`Membarrier`]). That a task is polled by one
/// thread at a time rests on it, and that a worker's lock is.
///
/// # Safety
/// Where [`Barrier::pass`] returns true, each thread of the process that runs has passed a full memory barrier between the
/// call and the return. A thread that did not run meanwhile passes one before it runs again.
pub unsafe trait Barrier: Send + Sync {
    /// Makes all threads pass a full memory barrier; false if that is not to be had. Asked once when the runtime starts, and
    /// then by thieves, while they hold locks.
    fn pass(&self) -> bool;
}

/// What a thread does that runs a future by [`block_on`](crate::block_on).
///
/// | news | called on | the thread now |
/// |---|---|---|
/// | `Begins` | itself | runs |
/// | `Waits` | itself | runs nothing until it is woken |
/// | `Woken` | whoever wakes it | runs, or is about to |
/// | `Ends` | itself | is done, by a panic too |
///
/// `Waits` and the `Woken` that ends it may come in either order: counted, they cancel out. Of two who wake it at once, one
/// takes his `Woken` back by a `Waits`. A thread never runs without being counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// It begins.
    Begins,
    /// The future is pending.
    Waits,
    /// The future's waker is called while the thread waits.
    Woken,
    /// It is over.
    Ends,
}

/// Parks threads, and knows no events.
pub(crate) struct ThreadDriver {
    threads: Box<[OnceLock<Thread>]>,
}

impl ThreadDriver {
    pub(crate) fn new(workers: usize) -> ThreadDriver {
        ThreadDriver { threads: (0..workers).map(|_| OnceLock::new()).collect() }
    }
}

impl Driver for ThreadDriver {
    fn attach(&self, worker: usize) {
        let _ = self.threads[worker].set(thread::current());
    }

    fn park(&self, _worker: usize, timeout: Option<Duration>) {
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

    fn barrier(&self) -> Option<&dyn Barrier> {
        Some(&Membarrier)
    }

    fn shutdown(&self) {}
}
