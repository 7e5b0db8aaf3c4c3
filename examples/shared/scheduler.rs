//! A scheduler of the program's own, for threads of its own, as in section 4 of the PLDI 2007
//! paper: in at most 220 lines.
//!
//! | the paper | here |
//! |---|---|
//! | a thread: a trace of system calls | a `Thread` around a future, which runs from one wait to the next |
//! | the ready queue, and event loops that take threads from it | `Queue`, and `Scheduler::run_some` once for each worker |
//! | event loops for epoll, AIO and timers; a pool for blocking calls | `dapple::net`, `fs`, `time` and `blocking`, which wake a thread |
//! | exceptions | `Result` in a thread; a panic ends one thread |
//! | `sys_mutex` | [`Mutex`] |
//!
//! The order is the program's own. With [`set_rank`], a thread says how many of the threads that
//! become ready later may go first: the one with the least work left should choose the lowest
//! number. So a thread waits for a bounded number of others.

#![allow(dead_code, reason = "an example may use a part of it")]

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::{mem, sync};

use dapple::{Color, Handle};

/// Runs threads in its own order, on the workers of the runtime in which it was started.
pub(crate) struct Scheduler {
    queue: sync::Mutex<Queue>,
}

struct Queue {
    ready: BinaryHeap<Ready>,
    /// The number of threads that have become ready so far.
    arrived: u64,
    /// The colors of resting loops, which found no ready thread.
    resting: Vec<Color>,
}

impl Scheduler {
    /// A scheduler with as many loops as the runtime has workers.
    pub(crate) fn start() -> Arc<Scheduler> {
        let resting = (0..Handle::current().workers()).map(|_| Color::new()).collect();
        let queue = sync::Mutex::new(Queue { ready: BinaryHeap::new(), arrived: 0, resting });
        Arc::new(Scheduler { queue })
    }

    /// Starts a thread.
    pub(crate) fn spawn(self: &Arc<Self>, body: impl Future<Output = ()> + Send + 'static) {
        let state = sync::Mutex::new(State::Waiting(Box::pin(body)));
        Arc::new(Thread { scheduler: self.clone(), state, rank: AtomicU64::new(0) }).wake();
    }

    /// Adds a thread to the queue, and starts a resting loop.
    fn push(self: &Arc<Self>, thread: Arc<Thread>) {
        let mut queue = lock(&self.queue);
        queue.arrived += 1;
        let place = queue.arrived + thread.rank.load(Relaxed);
        queue.ready.push(Ready { place, thread });
        let resting = queue.resting.pop();
        drop(queue);
        resting.into_iter().for_each(|color| self.run_later(color));
    }

    fn run_later(self: &Arc<Self>, color: Color) {
        let (scheduler, own) = (self.clone(), color.clone());
        color.post(move || scheduler.run_some(own));
    }

    /// A loop: runs threads in a callback, and yields to the other callbacks of its worker after a
    /// few.
    fn run_some(self: Arc<Self>, color: Color) {
        for _ in 0..ROUND {
            let mut queue = lock(&self.queue);
            let Some(next) = queue.ready.pop() else { return queue.resting.push(color) };
            drop(queue);
            next.thread.run();
        }
        self.run_later(color);
    }
}

/// A queued thread. The lowest place is the greatest, which the heap returns first.
struct Ready {
    place: u64,
    thread: Arc<Thread>,
}

impl Ord for Ready {
    fn cmp(&self, other: &Ready) -> Ordering {
        other.place.cmp(&self.place)
    }
}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Ready) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Ready) -> bool {
        self.place == other.place
    }
}

impl Eq for Ready {}

struct Thread {
    scheduler: Arc<Scheduler>,
    state: sync::Mutex<State>,
    rank: AtomicU64,
}

type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The holder of a thread's body.
enum State {
    Waiting(Body),
    Ready(Body),
    /// A loop has it. A wake meanwhile makes it ready again.
    Running {
        is_woken: bool,
    },
    Over,
}

impl Thread {
    /// Runs the thread up to its next wait.
    fn run(self: Arc<Self>) {
        let State::Ready(mut body) = mem::replace(&mut *lock(&self.state), State::Running { is_woken: false }) else {
            unreachable!("only a ready thread is in the queue, and only once");
        };
        let waker = Waker::from(self.clone());
        RANK.set(0);
        let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(&mut Context::from_waker(&waker))));
        self.rank.store(RANK.get(), Relaxed);
        if let Ok(Poll::Pending) = polled {
            let mut state = lock(&self.state);
            let is_woken = matches!(*state, State::Running { is_woken: true });
            *state = if is_woken { State::Ready(body) } else { State::Waiting(body) };
            drop(state);
            if is_woken {
                self.scheduler.push(self.clone());
            }
            return;
        }
        *lock(&self.state) = State::Over;
        // Its destructors may panic, too. The panic hook has reported either panic.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(body)));
    }
}

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        *state = match mem::replace(&mut *state, State::Over) {
            State::Waiting(body) => State::Ready(body),
            State::Running { .. } => State::Running { is_woken: true },
            other => return *state = other,
        };
        let is_ready = matches!(*state, State::Ready(_));
        drop(state);
        if is_ready {
            self.scheduler.push(self.clone());
        }
    }
}

/// Sets how many threads that become ready later may go before the calling thread, after its next
/// wait.
pub(crate) fn set_rank(rank: u64) {
    RANK.set(rank);
}

/// Lets other threads go.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| match mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A lock that a thread may hold while it waits. The value is absent while a thread has it.
pub(crate) struct Mutex<T>(sync::Mutex<(Option<T>, Vec<Waker>)>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new((Some(value), Vec::new())))
    }

    /// Waits for the value. Dropping the guard wakes all waiters: the scheduler's order decides
    /// which is next.
    pub(crate) async fn lock(&self) -> Guard<'_, T> {
        let take = |cx: &mut Context<'_>| {
            let mut line = lock(&self.0);
            let value = line.0.take();
            if value.is_none() {
                line.1.push(cx.waker().clone());
            }
            value.map_or(Poll::Pending, Poll::Ready)
        };
        Guard { mutex: self, value: Some(poll_fn(take).await) }
    }
}

pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    value: Option<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is there until the guard is dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is there until the guard is dropped")
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let mut line = lock(&self.mutex.0);
        line.0 = self.value.take();
        let waiting = mem::take(&mut line.1);
        drop(line);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// No foreign code runs under these locks, so a panic leaves no state half changed.
fn lock<T>(mutex: &sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The last rank that the running thread set.
    static RANK: Cell<u64> = const { Cell::new(0) };
}

/// Threads run by a loop in one callback.
const ROUND: usize = 16;
