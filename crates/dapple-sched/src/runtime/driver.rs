//! The trait of drivers, which wait for the kernel, and the driver of runtimes without I/O.

use std::any::Any;
use std::sync::OnceLock;
use std::task::RawWakerVTable;
use std::thread::{self, Thread};
use std::time::Duration;

use crate::observe::dump::TaskWait;
use crate::sync::barrier::Membarrier;

/// The part of a runtime in which workers wait, with one slot per worker. `dapple-io` implements it
/// with epoll, the simulator with its own clock.
///
/// A driver posts events when they become ready (C2), from inside [`Driver::park`] and
/// [`Driver::poll`]: it wakes tasks and calls callbacks. While it does so on a worker, idle colors
/// move to that worker.
///
/// If a method panics, the panic is reported to the panic handler and the runtime continues. The
/// driver itself must contain panics of wakers, because otherwise it would not wake the other
/// wakers.
pub trait Driver: Any + Send + Sync {
    /// Each worker's thread calls this once, before anything else.
    fn attach(&self, worker: usize) {
        let _ = worker;
    }

    /// Blocks the calling worker, with index `worker`, until its slot has events or due timers,
    /// until `unpark(worker)`, or for `timeout`. Dispatches everything that became ready before it
    /// returns.
    ///
    /// After an earlier unpark it returns at once. It may return for no reason.
    fn park(&self, worker: usize, timeout: Option<Duration>);

    /// Dispatches ready events of a slot, without blocking; true if there were any.
    ///
    /// The slot's own worker calls this between turns, and other workers while that one is in a
    /// long callback (C6). So it must be safe from any worker at any time, and skip rather than
    /// wait if another thread is in the slot.
    fn poll(&self, worker: usize) -> bool;

    /// As [`Driver::poll`], by the slot's own worker, which has no work while others are busy and a core is free: if
    /// another worker waits for events on its behalf, and is busy, this takes those events too. Default: `poll`.
    fn poll_shared(&self, worker: usize) -> bool {
        self.poll(worker)
    }

    /// The calling worker is about to park and rests, like all workers from number `active` on. If
    /// the worker waits for events on behalf of others, one of the workers below `active` must do
    /// that from now on. Default: nothing.
    fn rest(&self, worker: usize, active: usize) {
        let _ = (worker, active);
    }

    /// Makes `park(worker)` return. Any thread may call it.
    fn unpark(&self, worker: usize);

    /// The way to make all threads of the process pass a memory barrier, if there is one. Default:
    /// none.
    ///
    /// With it a worker takes many light tasks from its queue at once, which thieves can still
    /// reach; and it takes its own lock without a locked instruction.
    fn barrier(&self) -> Option<&dyn Barrier> {
        None
    }

    /// The processor time that the worker's thread has used so far, exact even while it runs;
    /// `None` if unknown.
    ///
    /// The monitor asks twice when a worker ends no turn while others sleep, to distinguish a
    /// worker in a long callback from one that lost its processor to another thread of the machine.
    fn cpu_time(&self, worker: usize) -> Option<Duration> {
        let _ = worker;
        None
    }

    /// Whether the worker's thread has or waits for a processor, instead of waiting in a system
    /// call; `None` if unknown. Asked only about a worker that used hardly any [`Driver::cpu_time`]
    /// and ended no turn.
    fn is_runnable(&self, worker: usize) -> Option<bool> {
        let _ = worker;
        None
    }

    /// For dumps: calls `visit` with the table and the data of each waker that waits in the driver,
    /// and with the kind of wait. Any thread may call this; `visit` takes no lock and calls no
    /// waker.
    fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        let _ = visit;
    }

    /// Whether this is the driver of a runtime with workers that the program steps ([`Stepped`](crate::Stepped)): `park` is never called.
    fn is_stepped(&self) -> bool {
        false
    }

    /// All workers have stopped: drops registered callbacks and wakers.
    fn shutdown(&self);

    /// Reports on a thread that is not a worker and runs a future by [`block_on`](crate::block_on),
    /// with this runtime current. A driver with a standing clock counts such threads, because they
    /// may start or wake a task at any time.
    fn outside(&self, news: Outside) {
        let _ = news;
    }
}

/// A memory barrier in all threads of the process, such as Linux's `membarrier` ([`Membarrier`]).
/// Two guarantees rest on it: one thread at a time polls a task, and one thread at a time has a
/// worker's lock.
///
/// # Safety
/// If [`Barrier::pass`] returns true, each running thread of the process has passed a full memory
/// barrier between the call and the return. A thread that did not run meanwhile passes one before
/// it runs again.
pub unsafe trait Barrier: Send + Sync {
    /// Makes all threads pass a full memory barrier; false if it cannot. Called once when the
    /// runtime starts, and then by thieves, while they hold locks.
    fn pass(&self) -> bool;
}

/// The state of a thread that runs a future by [`block_on`](crate::block_on).
///
/// | news | called on | the thread now |
/// |---|---|---|
/// | `Begins` | itself | runs |
/// | `Waits` | itself | runs nothing until it is woken |
/// | `Woken` | the waking thread | runs, or is about to |
/// | `Ends` | itself | is done, by a panic too |
///
/// `Waits` and the `Woken` that ends it may come in either order: a count of both comes to the same
/// number. If two threads wake it at once, a `Waits` of one of them takes back that thread's
/// `Woken`. A thread never runs without being counted.
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

/// A driver that parks threads and has no events.
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
