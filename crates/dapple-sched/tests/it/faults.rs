//! Foreign code that panics in the middle of the scheduler's own work: its neighbors get what they
//! wait for, and the runtime continues.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dapple_sched::{
    Color, Colored, Driver, Handle, Observer, Outside, Policy, Runnable, RunnableKey, Runtime, TraceEvent, spawn, when,
};

use crate::bombs::{DropBomb, blast, bomb, counting, drop_bomb, panic_twice};
use crate::clones::on_clone;
use crate::forget::forget;
use crate::support::{Gate, LONG, collector, occupy};

/// A runtime that keeps its panics to itself.
fn quiet(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).panic_handler(|_| ()).build().expect("threads can be started")
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A worker in a long callback is helped by the other one: C6 is on.
fn assert_c6(handle: &Handle) {
    let gate = Gate::default();
    let (tx, seen) = collector();
    let inside = gate.clone();
    handle.new_color_at(0).post(move || {
        for n in 0..10 {
            let tx = tx.clone();
            Color::new().post(move || tx.send(n).unwrap());
        }
        drop(tx);
        inside.wait();
    });
    assert_eq!(seen.all().len(), 10);
    gate.open();
}

#[test]
fn readers_are_let_in_next_to_one_with_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet(1);
        let _entered = runtime.enter();
        let state = Colored::new(7);
        let gate = occupy(state.color());
        let (calls, waker) = counting();
        let mut reads: Vec<_> = (0..3).map(|_| Box::pin(state.read(|n| *n))).collect();
        for (n, read) in reads.iter_mut().enumerate() {
            // The middle one is the bad one.
            let waker = if n == 1 { bad() } else { waker.clone() };
            assert!(poll(read.as_mut(), &waker).is_pending());
        }
        gate.open();
        wait_until("both neighbors are woken", || calls.count() == 2);
        for mut read in reads {
            wait_until("each has its grant", || poll(read.as_mut(), Waker::noop()) == Poll::Ready(7));
        }
        assert_eq!(state.with_blocking(|n| *n), 7);
    }
}

#[test]
fn a_waker_in_a_task_that_panics_keeps_no_task_from_the_state() {
    // Each kind of wait, by a task that never polls the wait again.
    for (kind, bad) in (0..3).flat_map(|kind| [(kind, bomb()), (kind, drop_bomb())]) {
        let runtime = quiet(2);
        let _entered = runtime.enter();
        let (one, other) = (Colored::new(1), Colored::new(2));
        let gate = occupy(one.color());
        let (own, own_other) = (one.clone(), other.clone());
        let (tx, rx) = channel();
        let mut bad = Some(bad);
        let task = spawn(async move {
            let mut alone = pin!(own.with(|n| *n));
            let mut read = pin!(own.read(|n| *n));
            let mut set = pin!(when((&own, &own_other)).with(|(a, b)| *a + *b));
            poll_fn(|_| {
                let Some(bad) = bad.take() else { return Poll::<()>::Pending };
                let waits = match kind {
                    0 => poll(alone.as_mut(), &bad).is_pending(),
                    1 => poll(read.as_mut(), &bad).is_pending(),
                    _ => poll(set.as_mut(), &bad).is_pending(),
                };
                // From now on the wait has the last clone.
                drop(bad);
                tx.send(waits).unwrap();
                Poll::Pending
            })
            .await;
        });
        assert!(rx.recv_timeout(LONG).unwrap());
        gate.open();
        assert_eq!(one.with_blocking(|n| *n), 1);
        assert_eq!(other.with_blocking(|n| *n), 2);
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_aborted());
    }
}

#[test]
fn a_wait_goes_on_when_its_old_waker_panics_in_its_drop() {
    let runtime = quiet(1);
    let _entered = runtime.enter();
    let state = Colored::new(1);
    let gate = occupy(state.color());
    let mut wait = pin!(state.with(|n| *n));
    assert!(poll(wait.as_mut(), &drop_bomb()).is_pending());
    let (calls, waker) = counting();
    assert!(poll(wait.as_mut(), &waker).is_pending());
    gate.open();
    wait_until("it is woken", || calls.count() > 0);
    assert_eq!(poll(wait.as_mut(), &waker), Poll::Ready(1));
}

#[test]
fn a_waker_that_cannot_be_cloned_leaves_nothing_behind() {
    let runtime = quiet(1);
    let _entered = runtime.enter();
    let (state, other) = (Colored::new(1), Colored::new(2));
    let gate = occupy(state.color());
    let bad = on_clone(|| panic!("no clone"));
    assert!(blast(|| _ = poll(pin!(state.with(|n| *n)), &bad)));
    assert!(blast(|| _ = poll(pin!(state.read(|n| *n)), &bad)));
    assert!(blast(|| _ = poll(pin!(when((&state, &other)).with(|(a, b)| *a + *b)), &bad)));
    let task = spawn(std::future::pending::<()>());
    assert!(blast(|| _ = task.poll_finished(&mut Context::from_waker(&bad))));
    assert!(blast(|| _ = poll(pin!(runtime.handle().closing()), &bad)));
    gate.open();
    assert_eq!(state.with_blocking(|n| *n) + other.with_blocking(|n| *n), 3);
}

#[test]
fn a_waker_is_cloned_under_no_lock() {
    let runtime = quiet(1);
    let handle = runtime.handle().clone();
    let inner = handle.clone();
    let waker = on_clone(move || _ = poll(pin!(inner.closing()), Waker::noop()));
    // On a separate thread: if it waited for itself, the test would not end.
    let (tx, rx) = channel();
    std::thread::spawn(move || {
        assert!(poll(pin!(handle.closing()), &waker).is_pending());
        tx.send(()).unwrap();
    });
    rx.recv_timeout(LONG).expect("the clone waits for a lock that its own thread holds");
}

#[test]
fn the_news_of_a_shutdown_reach_the_neighbors_of_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet(1);
        let handle = runtime.handle().clone();
        let mut first = pin!(handle.closing());
        assert!(poll(first.as_mut(), &bad()).is_pending());
        let (calls, waker) = counting();
        let mut second = pin!(handle.closing());
        assert!(poll(second.as_mut(), &waker).is_pending());
        assert_eq!(runtime.shutdown(LONG).workers_stuck, 0);
        assert_eq!(calls.count(), 1);
        assert!(poll(second.as_mut(), &waker).is_ready());
    }
}

#[test]
fn a_joiner_that_panics_is_alone_with_it() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet(1);
        let (tx, rx) = channel::<()>();
        let task = runtime.spawn(async move { _ = rx.recv() });
        assert!(task.poll_finished(&mut Context::from_waker(&bad())).is_pending());
        drop(tx);
        wait_until("the task has ended", || task.is_finished() && runtime.handle().stats().tasks_live == 0);
        runtime.block_on(task).unwrap();
    }
    let runtime = quiet(1);
    let task = runtime.spawn(std::future::pending::<()>());
    let bad = drop_bomb();
    assert!(task.poll_finished(&mut Context::from_waker(&bad)).is_pending());
    forget(bad);
    assert!(task.poll_finished(&mut Context::from_waker(&drop_bomb())).is_pending());
    assert!(task.poll_finished(&mut Context::from_waker(Waker::noop())).is_pending());
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_aborted());
}

#[test]
fn a_dropped_handle_drops_a_waker_that_panics() {
    let runtime = quiet(1);
    let task = runtime.spawn(std::future::pending::<()>());
    assert!(task.poll_finished(&mut Context::from_waker(&drop_bomb())).is_pending());
    drop(task);
}

#[test]
fn a_panic_with_a_payload_that_panics_ends_that_callback_only() {
    let runtime = quiet(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let (tx, seen) = collector();
    for n in 0..3 {
        let tx = tx.clone();
        color.post(move || {
            if n == 1 {
                panic_twice();
            }
            tx.send(n).unwrap();
        });
    }
    drop(tx);
    assert_eq!(seen.all(), [0, 2]);
    let task = spawn(async { panic_twice() });
    wait_until("the task has ended", || task.is_finished());
    drop::<dapple_sched::JoinHandle<()>>(task);
    assert_eq!(runtime.block_on(async { spawn(async { 3 }).await.unwrap() }), 3);
}

#[test]
fn a_panic_handler_that_panics_changes_nothing() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| panic_twice()).build().unwrap();
    let _entered = runtime.enter();
    for _ in 0..3 {
        Color::new().post(|| panic_twice());
    }
    let state = Colored::new(7);
    let gate = occupy(state.color());
    let mut read = pin!(state.read(|n| *n));
    assert!(poll(read.as_mut(), &bomb()).is_pending());
    gate.open();
    wait_until("it is granted", || poll(read.as_mut(), Waker::noop()).is_ready());
    assert_c6(runtime.handle());
}

#[test]
fn c6_stays_on_when_the_handler_of_slow_callbacks_panics() {
    let called = Arc::new(AtomicUsize::new(0));
    let calls = called.clone();
    let slow = move |_: &dapple_sched::SlowCallback| {
        calls.fetch_add(1, Ordering::SeqCst);
        panic_twice();
    };
    let runtime = Runtime::builder()
        .workers(2)
        .panic_handler(|_| ())
        .slow_callback(Duration::from_millis(1), slow)
        .build()
        .unwrap();
    let _entered = runtime.enter();
    for reports in 1..4 {
        let gate = occupy(&runtime.handle().new_color_at(0));
        wait_until("it is reported", || called.load(Ordering::SeqCst) >= reports);
        gate.open();
    }
    assert_c6(runtime.handle());
}

/// A driver that parks threads, and panics in each call while it is told to.
struct Panicking {
    unparked: Mutex<Vec<bool>>,
    changed: Condvar,
    panics: AtomicBool,
    /// Panics so far.
    count: AtomicUsize,
}

impl Panicking {
    fn new(workers: usize) -> Arc<Panicking> {
        let (panics, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Panicking { unparked: Mutex::new(vec![false; workers]), changed: Condvar::new(), panics, count })
    }

    fn panic_if_told(&self) {
        if self.panics.load(Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
            panic_twice();
        }
    }
}

struct Shared(Arc<Panicking>);

impl Driver for Shared {
    fn attach(&self, _worker: usize) {
        panic_twice();
    }

    fn park(&self, worker: usize, _timeout: Option<Duration>) {
        let mut unparked = self.0.unparked.lock().unwrap();
        while !std::mem::take(&mut unparked[worker]) {
            unparked = self.0.changed.wait(unparked).unwrap();
        }
        drop(unparked);
        self.0.panic_if_told();
    }

    fn poll(&self, _worker: usize) -> bool {
        self.0.panic_if_told();
        false
    }

    fn unpark(&self, worker: usize) {
        self.0.unparked.lock().unwrap()[worker] = true;
        self.0.changed.notify_all();
        self.0.panic_if_told();
    }

    fn shutdown(&self) {
        panic_twice();
    }

    fn outside(&self, _news: Outside) {
        self.0.panic_if_told();
    }
}

#[test]
fn c6_stays_on_when_the_driver_panics() {
    let driver = Panicking::new(2);
    let own = driver.clone();
    let runtime =
        Runtime::builder().workers(2).panic_handler(|_| ()).driver(move |_| Ok(Arc::new(Shared(own)))).build().unwrap();
    let _entered = runtime.enter();
    let handle = runtime.handle().clone();
    driver.panics.store(true, Ordering::SeqCst);
    for round in 1..5 {
        // Wakes a worker, which panics on the way; so does the waiting thread.
        let color = handle.new_color_at(round);
        let ran = runtime.block_on(async { color.spawn(async { 1 }).await.unwrap() });
        assert_eq!(ran, 1);
        wait_until("it has panicked", || driver.count.load(Ordering::SeqCst) >= 2 * round);
    }
    driver.panics.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        assert_c6(&handle);
    }
    assert_eq!(runtime.shutdown(LONG).workers_stuck, 0);
}

#[test]
fn an_observer_that_panics_twice_watches_on() {
    struct Bad(AtomicUsize);
    impl Observer for Bad {
        fn event(&self, _event: &TraceEvent) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic_twice();
        }
    }
    let observer = Arc::new(Bad(AtomicUsize::new(0)));
    let runtime = Runtime::builder().workers(2).observer(observer.clone()).build().unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(0);
    for _ in 0..10 {
        state.post(|n| *n += 1);
    }
    assert_eq!(state.with_blocking(|n| *n), 10);
    wait_until("it has heard of all", || observer.0.load(Ordering::SeqCst) >= 30);
    assert_c6(runtime.handle());
}

#[test]
fn a_policy_that_panics_everywhere_is_replaced() {
    struct Bad(DropBomb);
    impl Policy for Bad {
        fn queued(&mut self, _color: &Runnable) {
            let _field = &self.0;
            panic_twice();
        }
        fn removed(&mut self, _key: RunnableKey) {
            panic_twice();
        }
        fn pick(&mut self) -> Option<RunnableKey> {
            panic_twice();
        }
    }
    let runtime =
        Runtime::builder().workers(2).panic_handler(|_| ()).policy(|_| Box::new(Bad(DropBomb))).build().unwrap();
    let _entered = runtime.enter();
    for _ in 0..5 {
        let tasks: Vec<_> = (0..10).map(|n| spawn(async move { n })).collect();
        let sum = runtime.block_on(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 45);
    }
    assert_c6(runtime.handle());
}

#[test]
fn drops_at_a_shutdown_may_panic() {
    struct Counted(Arc<AtomicUsize>, DropBomb);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let runtime = quiet(2);
    let entered = runtime.enter();
    let state = Colored::new(Counted(dropped.clone(), DropBomb));
    let gate = occupy(state.color());
    let (a, b, c) =
        (Counted(dropped.clone(), DropBomb), Counted(dropped.clone(), DropBomb), Counted(dropped.clone(), DropBomb));
    state.post(move |_| drop(a));
    let task = state.color().spawn(async move {
        let _b = b;
        std::future::pending::<()>().await;
    });
    let light = spawn(async move {
        let _c = c;
        std::future::pending::<()>().await;
    });
    let opener = std::thread::spawn(move || gate.open());
    drop((entered, task, light));
    assert_eq!(runtime.shutdown(Duration::ZERO).workers_stuck, 0);
    opener.join().unwrap();
    drop(state);
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}
