//! A program's context around the threads of a runtime.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dapple_sched::{Builder, Color, Runtime, ThreadContext};

thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });

#[derive(Default)]
struct Counted {
    begun: AtomicUsize,
    ended: AtomicUsize,
    shut_down: AtomicUsize,
}

impl ThreadContext for Counted {
    fn around(&self, run: &mut dyn FnMut()) {
        self.begun.fetch_add(1, SeqCst);
        DEPTH.set(DEPTH.get() + 1);
        run();
        DEPTH.set(DEPTH.get() - 1);
        self.ended.fetch_add(1, SeqCst);
    }

    fn shutdown(&self) {
        assert_eq!(DEPTH.get(), 1, "a worker tells it, inside of its own context");
        self.shut_down.fetch_add(1, SeqCst);
    }
}

fn counted(workers: usize) -> (Arc<Counted>, Builder) {
    let counted = Arc::new(Counted::default());
    let context = counted.clone();
    (counted, Runtime::builder().workers(workers).thread_context(move || Ok(context)))
}

#[test]
fn it_is_around_every_callback_and_poll() {
    let (counted, builder) = counted(3);
    let runtime = builder.build().unwrap();
    let entered = runtime.enter();
    let (tx, rx) = mpsc::channel();
    for _ in 0..100 {
        let (callback, destructor) = (tx.clone(), OnDrop(tx.clone()));
        Color::new().post(move || callback.send(DEPTH.get()).unwrap());
        runtime.spawn(async move {
            let _destructor = destructor;
            dapple_sched::yield_now().await;
            assert_eq!(DEPTH.get(), 1);
        });
    }
    drop(tx);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [1; 200]);
    assert_eq!(runtime.block_on(async { DEPTH.get() }), 1);
    assert_eq!(runtime.block_on(async { dapple_sched::block_on(async { DEPTH.get() }) }), 2);
    assert_eq!(DEPTH.get(), 0);
    drop(entered);
    runtime.shutdown(Duration::MAX);
    // Three workers, and the three calls of `block_on` that this thread has made.
    assert_eq!([&counted.begun, &counted.ended, &counted.shut_down].map(|count| count.load(SeqCst)), [6, 6, 1]);
}

struct OnDrop(mpsc::Sender<usize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.send(DEPTH.get()).unwrap();
    }
}

#[test]
fn drops_at_the_end_are_inside() {
    let (counted, builder) = counted(2);
    let runtime = builder.build().unwrap();
    let (tx, rx) = mpsc::channel();
    let destructor = OnDrop(tx);
    let (polled, is_polled) = mpsc::channel();
    runtime.spawn(async move {
        let _destructor = destructor;
        polled.send(()).unwrap();
        std::future::pending::<()>().await
    });
    is_polled.recv().unwrap();
    drop(runtime);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [1]);
    assert_eq!(counted.shut_down.load(SeqCst), 1);
}

#[test]
fn a_panic_of_the_future_passes_through() {
    let (_counted, builder) = counted(1);
    let runtime = builder.build().unwrap();
    let panicked =
        std::thread::scope(|scope| scope.spawn(|| runtime.block_on(async { panic!("on purpose") })).join().is_err());
    assert!(panicked);
    assert_eq!(runtime.block_on(runtime.spawn(async { DEPTH.get() })).unwrap(), 1);
}

/// Panics before, or instead of, the worker.
struct Broken {
    calls: bool,
}

impl ThreadContext for Broken {
    fn around(&self, run: &mut dyn FnMut()) {
        if self.calls {
            run();
            run();
        }
        panic!("on purpose");
    }

    fn shutdown(&self) {
        panic!("on purpose");
    }
}

#[test]
fn workers_run_under_a_context_that_is_broken() {
    for calls in [false, true] {
        let (tx, rx) = mpsc::channel();
        let builder = Runtime::builder().workers(2).panic_handler(move |panic| {
            let _ = tx.send(panic.message.to_owned());
        });
        let runtime = builder.thread_context(move || Ok(Arc::new(Broken { calls }))).build().unwrap();
        let (done, is_done) = mpsc::channel();
        runtime.spawn(async move { done.send(42).unwrap() });
        assert_eq!(is_done.recv(), Ok(42));
        runtime.shutdown(Duration::MAX);
        // One for each worker, and one for the end.
        assert_eq!(rx.iter().collect::<Vec<_>>(), ["on purpose"; 3]);
    }
}

#[test]
fn an_error_ends_the_build() {
    let error = Runtime::builder().thread_context(|| Err(std::io::ErrorKind::Other.into())).build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Other);
}
