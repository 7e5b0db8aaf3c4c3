//! C8: a panic ends only that callback or task; a joiner learns of it; the state is poisoned.

use std::sync::mpsc::channel;

use dapple_sched::{Color, Colored, Runtime, TryWithError, spawn};

use crate::support::{LONG, collector, runtime};

/// A runtime that sends its panics here instead of printing them.
fn listening() -> (Runtime, std::sync::mpsc::Receiver<(Color, String)>) {
    let (tx, rx) = channel();
    let tx = std::sync::Mutex::new(tx);
    let runtime = Runtime::builder()
        .workers(1)
        .panic_handler(move |info| drop(tx.lock().unwrap().send((info.color.clone(), info.message.to_owned()))))
        .build()
        .unwrap();
    (runtime, rx)
}

#[test]
fn c8_a_panic_ends_that_callback_only() {
    let (runtime, panics) = listening();
    let _entered = runtime.enter();
    let color = Color::new();
    let (tx, seen) = collector();
    for n in 0..3 {
        let tx = tx.clone();
        color.post(move || {
            assert_ne!(n, 1, "number one");
            tx.send(n).unwrap();
        });
    }
    drop(tx);
    assert_eq!(seen.all(), [0, 2]);
    let (reported, message) = panics.recv_timeout(LONG).unwrap();
    assert_eq!(reported, color);
    assert!(message.contains("number one"), "{message}");
    assert_eq!(runtime.handle().stats().workers[0].panics, 1);
}

#[test]
fn c8_a_joiner_learns_of_it() {
    let runtime = runtime(2);
    let failed = runtime.block_on(async { spawn(async { panic!("in the task") }).await }).unwrap_err();
    assert!(failed.is_panic() && !failed.is_aborted());
    assert!(failed.to_string().contains("in the task"), "{failed}");
    assert_eq!(*failed.into_panic().downcast::<&str>().unwrap(), "in the task");
}

#[test]
fn c8_a_panicking_destructor_is_a_panic_of_the_task() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    let runtime = runtime(1);
    let task = runtime.spawn(async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
    });
    runtime.block_on(spawn_in(&runtime));
    task.abort();
    let failed = runtime.block_on(task).unwrap_err();
    assert!(failed.to_string().contains("in the destructor"), "{failed}");
}

async fn spawn_in(runtime: &Runtime) {
    runtime.spawn(async {}).await.unwrap();
}

#[test]
fn c8_a_panic_poisons_the_state() {
    let (runtime, panics) = listening();
    let _entered = runtime.enter();
    let state = Colored::new(1);
    let inner = state.clone();
    let failed = runtime.block_on(async { spawn(async move { inner.with(|_| panic!("half way")).await }).await });
    assert!(failed.unwrap_err().to_string().contains("half way"), "the panic unwinds into the caller");
    assert!(state.is_poisoned());
    assert_eq!(state.try_with(|n| *n), Err(TryWithError::Poisoned));
    let inner = state.clone();
    let failed = runtime.block_on(async { spawn(async move { inner.with(|n| *n).await }).await }).unwrap_err();
    assert!(failed.to_string().contains("poisoned"), "{failed}");
    state.post(|n| *n = 99);
    assert!(panics.recv_timeout(LONG).unwrap().1.contains("poisoned"));
    state.clear_poison();
    assert_eq!(state.with_blocking(|n| *n), 1, "no closure was let in");
}

#[test]
fn c8_a_posted_panic_poisons_too() {
    let (runtime, panics) = listening();
    let _entered = runtime.enter();
    let state = Colored::new(1);
    state.post(|_| panic!("posted"));
    assert_eq!(panics.recv_timeout(LONG).unwrap().0, *state.color());
    assert!(state.is_poisoned());
}

#[test]
fn c8_a_panic_of_an_unawaited_task_is_reported() {
    let (runtime, panics) = listening();
    let _entered = runtime.enter();
    let task = spawn(async { panic!("detached") });
    let color = task.color().clone();
    drop(task);
    let reported = panics.recv_timeout(LONG).unwrap();
    assert_eq!((reported.0, reported.1.as_str()), (color, "detached"));
    // Its handle is dropped after the end, without an await.
    let task = spawn(async { panic!("unasked") });
    while !task.is_finished() {
        std::thread::yield_now();
    }
    drop(task);
    assert_eq!(panics.recv_timeout(LONG).unwrap().1, "unasked");
    // One that was joined is not.
    let joined = spawn(async { panic!("joined") });
    runtime.block_on(joined).unwrap_err();
    assert!(panics.try_recv().is_err());
    assert_eq!(runtime.handle().stats().workers[0].panics, 3);
}

#[test]
fn c8_a_library_that_finds_no_tokio_runtime_is_reported_with_what_to_do() {
    let (tx, advised) = channel();
    let handler = move |info: &dapple_sched::PanicInfo<'_>| {
        let _ = tx.send(info.advice());
    };
    let runtime = Runtime::builder().workers(1).panic_handler(handler).build().unwrap();
    let _entered = runtime.enter();
    for text in ["there is no reactor running", "this functionality requires a Tokio context"] {
        Color::new().post(move || std::panic::panic_any(text));
        let advice = advised.recv_timeout(LONG).unwrap().expect("it says what to do");
        assert!(advice.contains("`dapple::builder().tokio()`") && advice.contains("`.compat()`"), "{advice}");
    }
    Color::new().post(|| panic!("on purpose"));
    assert_eq!(advised.recv_timeout(LONG).unwrap(), None);
}
