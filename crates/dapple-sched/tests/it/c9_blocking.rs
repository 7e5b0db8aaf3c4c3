//! C9: blocking forms refuse to run on a worker, and say what to write instead.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{
    Callback, Color, Colored, Runtime, SlowCallback, Slowness, block_on, described, on_worker, spawn, unconstrained,
};

use crate::support::{Collected, Gate, LONG, collector, occupy, runtime};

#[test]
fn c9_blocking_forms_refuse_on_a_worker() {
    let runtime = runtime(1);
    assert!(!on_worker());
    runtime.block_on(async {
        let state = Colored::new(0);
        let failed = spawn(async move {
            assert!(on_worker());
            state.with_blocking(|n| *n)
        });
        let failed = failed.await.unwrap_err().to_string();
        assert!(failed.contains("await `with`"), "{failed}");
        let failed = spawn(async { block_on(async {}) }).await.unwrap_err().to_string();
        assert!(failed.contains("block a worker"), "{failed}");
    });
}

#[test]
fn c9_blocking_while_holding_a_state_is_refused() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (a, b) = (Colored::new(1), Colored::new(2));
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.with_blocking(|_| b.with_blocking(|n| *n))));
    let message = refused.unwrap_err();
    assert!(message.downcast_ref::<&str>().unwrap().contains("can deadlock"));
}

#[test]
fn c9_a_callback_that_does_not_end_is_reported_with_its_color() {
    for workers in [1, 2] {
        let (runtime, reports) = watched_runtime(workers);
        let _entered = runtime.enter();
        for color in [Color::named(77), Color::DEFAULT] {
            let gate = occupy(&color);
            let slow = reports.next();
            assert_eq!(slow.color_id, color.id());
            assert!(slow.worker < workers);
            assert!(slow.running_for >= Duration::from_millis(20));
            gate.open();
        }
    }
}

#[test]
fn c9_a_callback_that_does_not_end_is_reported_with_the_line_that_posted_it() {
    let (runtime, reports) = watched_runtime(1);
    let _entered = runtime.enter();
    let color = Color::named(78);
    let wrapped: Callback<Box<dyn FnOnce() + Send>> = color.wrap(|wait: Box<dyn FnOnce() + Send>| wait());
    let ways: [(u32, &dyn Fn(Wait)); 7] = [
        (line!(), &|wait| color.post(wait)),
        (line!(), &|wait| drop(color.post_cancellable(wait))),
        (line!(), &|wait| color.try_post(wait).unwrap()),
        (line!(), &|wait| wrapped.call(wait)),
        (line!(), &|wait| drop(color.spawn(async { wait() }))),
        (line!(), &|wait| drop(spawn(async { wait() }))),
        (line!(), &|wait| Colored::with_color((), &color).post(|()| wait())),
    ];
    for (line, post) in ways {
        let gate = Gate::default();
        let (tx, started) = channel();
        let inside = gate.clone();
        post(Box::new(move || {
            tx.send(Color::current().id()).unwrap();
            inside.wait();
        }));
        let color_id = started.recv_timeout(LONG).unwrap();
        let slow = reports.next();
        assert_eq!((slow.posted_from.file(), slow.posted_from.line()), (file!(), line));
        assert_eq!((slow.color_id, slow.worker), (color_id, 0));
        gate.open();
    }
}

#[test]
fn c9_a_waiter_that_does_not_end_is_reported_with_its_own_line_and_color() {
    let (runtime, reports) = watched_runtime(1);
    let _entered = runtime.enter();
    let state = Colored::with_color(0, &Color::named(79));
    // While the state's color is busy the task queues a wait, and is polled within the turn of that color.
    let busy = occupy(state.color());
    let gate = Gate::default();
    let inside = gate.clone();
    let (task, spawned_at) = (Color::named(80).spawn(async move { state.with(|_| inside.wait()).await }), line!());
    assert_eq!(reports.next().color_id, 79);
    busy.open();
    let slow = reports.next();
    // It runs as a part of the task.
    assert_eq!((slow.color_id, slow.posted_from.line()), (80, spawned_at));
    gate.open();
    runtime.block_on(task).unwrap();
}

#[test]
fn c9_a_report_tells_what_blocks_from_what_never_yields() {
    let (runtime, reports) = watched_runtime(1);
    let _entered = runtime.enter();
    let gate = occupy(&Color::new());
    assert_eq!(reports.next().slowness, Slowness::Blocks);
    gate.open();
    // A callback that is preempted between two checks may seem to block: then there is one more.
    let state = Colored::new(0);
    let never_yields = (0..1_000).any(|_| {
        let over = Arc::new(AtomicBool::new(false));
        let (state, ends) = (state.clone(), over.clone());
        let busy = spawn(unconstrained(async move {
            while !ends.load(Relaxed) {
                state.with(|n| *n += 1).await;
            }
        }));
        let slow = reports.next();
        over.store(true, Relaxed);
        runtime.block_on(busy).unwrap();
        slow.slowness == Slowness::NeverYields
    });
    assert!(never_yields);
}

#[test]
fn c9_a_report_names_the_line_that_made_the_state() {
    let (runtime, reports) = watched_runtime(1);
    let _entered = runtime.enter();
    let (state, made_at) = (Colored::new(0), line!());
    let outside = occupy(&Color::new());
    assert_eq!(reports.next().state, None);
    outside.open();
    let ways: [&dyn Fn(Wait); 4] = [
        &|wait| state.post(|_| wait()),
        &|wait| state.post_read(|_| wait()),
        &|wait| {
            let state = state.clone();
            drop(spawn(async move { state.with(|_| wait()).await }));
        },
        &|wait| {
            let state = state.clone();
            drop(spawn(async move { state.read(|_| wait()).await }));
        },
    ];
    for post in ways {
        let gate = Gate::default();
        let inside = gate.clone();
        post(Box::new(move || inside.wait()));
        let line = reports.next().state.expect("it is in a closure");
        assert_eq!((line.file(), line.line()), (file!(), made_at));
        gate.open();
    }
}

#[test]
fn c9_a_report_says_what_the_poll_is_about() {
    let (runtime, reports) = watched_runtime(1);
    let _entered = runtime.enter();
    let (first, second) = (Gate::default(), Gate::default());
    let (in_first, in_second) = (first.clone(), second.clone());
    let task = spawn(async move {
        described(format!("GET /{}", "slow"), async move { in_first.wait() }).await;
        dapple_sched::yield_now().await;
        in_second.wait();
    });
    assert_eq!(reports.next().about.as_deref(), Some("GET /slow"));
    first.open();
    assert_eq!(reports.next().about, None);
    second.open();
    runtime.block_on(task).unwrap();
}

type Wait = Box<dyn FnOnce() + Send>;

/// A runtime that reports callbacks of more than 20 ms.
fn watched_runtime(workers: usize) -> (Runtime, Collected<SlowCallback>) {
    let (tx, reports) = collector();
    let tx = Mutex::new(tx);
    let runtime = Runtime::builder()
        .workers(workers)
        .slow_callback(Duration::from_millis(20), move |slow| tx.lock().unwrap().send(slow.clone()).unwrap())
        .build()
        .unwrap();
    (runtime, reports)
}
