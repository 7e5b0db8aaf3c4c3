//! Foreign code that panics deep inside the scheduler: the interrupted work of its thread is
//! completed or undone.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use dapple_sched::{Color, Colored, Driver, Runtime, when};

use crate::forget::forget;
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

/// Fills the stack with bytes that are not pointers.
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
    // Releasing `a` grants it to the other thread; its waker panics.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let inside = || {
            inside_tx.send(()).unwrap();
            polled_rx.recv_timeout(LONG).unwrap();
        };
        a.try_with(|()| inside()).unwrap();
    }));
    overwrite_stack();
    // The next color that has nodes and that this thread releases, of a stopped runtime.
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
    // Queued, because the worker is busy; the color of the second one is held until its turn comes.
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
    // The shutdown may have left the worker behind, on a machine that did not let it run.
    wait_until("the worker has lost tasks", || {
        dropped.load(Relaxed) == 3 && tasks.iter().all(|task| task.is_finished())
    });
}

/// Parks threads; the first few times it panics there, as foreign code called for an event may.
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

/// Polls a wait once, with a waker that panics.
fn poll_with_bomb<F: Future>(wait: &mut std::pin::Pin<Box<F>>) {
    let waker = Waker::from(Arc::new(Bomb));
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
}

// Regression: `Worker::next` had popped a color when it completed the last turn, and the color was
// lost.
#[test]
fn no_other_color_is_lost_where_a_waker_panics() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let state = Colored::new(());
    let gate = occupy(state.color());
    let mut wait = Box::pin(state.with(|()| ()));
    poll_with_bomb(&mut wait);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let ran = ran.clone();
        Color::new().post(move || _ = ran.fetch_add(1, Relaxed));
    }
    gate.open();
    wait_until("a color was lost", || ran.load(Relaxed) == 8);
    drop(wait);
}

// Regression: `Request::poll_waiter` did not reach `finish`, and the task's color stayed held.
#[test]
fn a_set_is_let_go_of_where_the_waker_of_a_missed_chance_panics() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let _entered = runtime.enter();
    let own = runtime.handle().new_color_at(0);
    let (mine, other) = (Colored::with_color((), &own), Colored::with_color((), &runtime.handle().new_color_at(1)));
    let (began_tx, began) = channel();
    let gate = occupy(other.color());
    let task = {
        let other = other.clone();
        own.spawn(async move {
            let mut wait = Box::pin(when((&mine, &other)).with(|_| ()));
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                match polls {
                    1 => {
                        poll_with_bomb(&mut wait);
                        began_tx.send(()).unwrap();
                        std::task::Poll::Pending
                    }
                    // The wanted color is held, and the task polls another future, as in a
                    // `select!`.
                    2 => {
                        cx.waker().wake_by_ref();
                        std::task::Poll::Pending
                    }
                    _ => std::task::Poll::Ready(()),
                }
            })
            .await;
        })
    };
    began.recv_timeout(LONG).unwrap();
    gate.open();
    wait_until("the task's color is held for good", || task.is_finished() && other.try_with(|()| ()).is_ok());
}

// Regression: `Ticket::hand_over` woke before it had arranged the poll, and the state stayed held.
#[test]
fn a_state_is_let_go_of_where_the_waker_of_a_grant_panics() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let _entered = runtime.enter();
    let own = runtime.handle().new_color_at(0);
    let state = Colored::with_color((), &runtime.handle().new_color_at(1));
    let (began_tx, began) = channel();
    let gate = occupy(state.color());
    let task = {
        let state = state.clone();
        own.spawn(async move {
            let mut wait = Box::pin(state.with(|()| ()));
            let mut polled = false;
            std::future::poll_fn(move |_| {
                if !polled {
                    polled = true;
                    poll_with_bomb(&mut wait);
                    began_tx.send(()).unwrap();
                }
                std::task::Poll::<()>::Pending
            })
            .await;
        })
    };
    began.recv_timeout(LONG).unwrap();
    // The task's color is busy when the state's turn reaches the wait, so that the state is handed
    // over.
    let own_gate = occupy(&own);
    gate.open();
    wait_until("the state was not reached", || runtime.handle().stats().workers.iter().any(|worker| worker.panics > 0));
    own_gate.open();
    wait_until("the state is held for good", || state.try_with(|()| ()).is_ok());
    task.abort();
}

/// The data that a waker shares with the test: its clone takes a while, and its wake panics.
struct Slow {
    cloning: std::sync::mpsc::Sender<()>,
    go_on: Mutex<std::sync::mpsc::Receiver<()>>,
}

/// A waker with a `clone` that waits for the test.
fn slow_waker(slow: &'static Slow) -> Waker {
    use std::task::{RawWaker, RawWakerVTable};
    static SLOW: RawWakerVTable = RawWakerVTable::new(
        |slow| {
            // SAFETY: made from a `&'static Slow` below.
            let shared = unsafe { &*slow.cast::<Slow>() };
            let _ = shared.cloning.send(());
            let _ = shared.go_on.lock().unwrap().recv_timeout(LONG);
            RawWaker::new(slow, &SLOW)
        },
        |_| panic!("in a waker"),
        |_| panic!("in a waker"),
        |_| (),
    );
    // SAFETY: all functions may be called from any thread; the data is static.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::from_ref(slow).cast(), &SLOW)) }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

struct Tell(Mutex<std::sync::mpsc::Sender<()>>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().send(()).unwrap();
    }
}

type Wait = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

struct Plan {
    state: &'static Colored<()>,
    polls: AtomicUsize,
    dropped: AtomicUsize,
    granted: Waker,
    wait: Mutex<std::sync::mpsc::Sender<Wait>>,
    in_poll: Mutex<std::sync::mpsc::Sender<()>>,
    end: Mutex<std::sync::mpsc::Receiver<()>>,
}

/// Its output has the same layout, so that the test survives a poll or drop of a future that no
/// longer exists.
struct Planned(&'static Plan);

impl Drop for Planned {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

impl Future for Planned {
    type Output = &'static Plan;

    fn poll(self: std::pin::Pin<&mut Self>, _cx: &mut Context<'_>) -> std::task::Poll<&'static Plan> {
        let plan = self.0;
        if plan.polls.fetch_add(1, SeqCst) == 0 {
            let mut wait: Wait = Box::pin(plan.state.with(|()| ()));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&plan.granted)).is_pending());
            plan.wait.lock().unwrap().send(wait).unwrap();
            return std::task::Poll::Pending;
        }
        plan.in_poll.lock().unwrap().send(()).unwrap();
        plan.end.lock().unwrap().recv_timeout(LONG).unwrap();
        std::task::Poll::Ready(plan)
    }
}

// Regression: `poll_colored` revoked grants that came between the poll and `finish_colored`. A
// waker that panics there leaves a task that has ended without noticing: its output is dropped, or
// polled, as if it were the future.
#[test]
fn a_future_is_dropped_once_where_the_waker_of_a_revoked_grant_panics() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let own = runtime.handle().new_color_at(0);
    let state: &'static Colored<()> = Box::leak(Box::new(Colored::with_color((), &runtime.handle().new_color_at(1))));
    let (granted_tx, granted) = channel();
    let (wait_tx, wait) = channel();
    let (in_poll_tx, in_poll) = channel();
    let (end, end_rx) = channel();
    let plan: &'static Plan = Box::leak(Box::new(Plan {
        state,
        polls: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
        granted: Waker::from(Arc::new(Tell(Mutex::new(granted_tx)))),
        wait: Mutex::new(wait_tx),
        in_poll: Mutex::new(in_poll_tx),
        end: Mutex::new(end_rx),
    }));
    let gate = occupy(state.color());
    let task = own.spawn(Planned(plan));
    let mut wait: Wait = wait.recv_timeout(LONG).unwrap();
    let own_gate = occupy(&own);
    // Another thread polls the wait, and is in the clone of its waker.
    let (cloning, is_cloning) = channel();
    let (go_on, go_on_rx) = channel();
    let (polled, was_polled) = channel();
    let slow: &'static Slow = Box::leak(Box::new(Slow { cloning, go_on: Mutex::new(go_on_rx) }));
    // A static keeps it reachable.
    forget((state, plan, slow));
    let other = thread::spawn(move || {
        let pending = wait.as_mut().poll(&mut Context::from_waker(&slow_waker(slow))).is_pending();
        polled.send(pending).unwrap();
        forget(wait);
    });
    is_cloning.recv_timeout(LONG).unwrap();
    // Dropped when a stopped worker takes the grant back: now the other thread continues.
    let hook = OnDrop(move || {
        let _ = (go_on.send(()), go_on.send(()));
        let _ = was_polled.recv_timeout(LONG);
    });
    state.post(move |()| drop(hook));
    gate.open();
    granted.recv_timeout(LONG).unwrap();
    own_gate.open();
    in_poll.recv_timeout(LONG).unwrap();
    runtime.shutdown(Duration::ZERO);
    end.send(()).unwrap();
    other.join().unwrap();
    wait_until("the task does not end", || task.is_finished());
    assert_eq!(plan.dropped.load(SeqCst), 1, "the future was dropped again, after its end");
}
