//! C1: two callbacks that hold a color for writing never overlap, and the end of one happens before
//! the next.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dapple_sched::{Color, Colored, yield_now};

use crate::support::{collector, runtime};

/// A counter that notices a second visitor.
#[derive(Default)]
struct Alone {
    inside: AtomicBool,
    plain: UnsafeCell<u64>,
}

// SAFETY: only one callback at a time is inside, as these tests check by `inside`.
unsafe impl Sync for Alone {}

impl Alone {
    fn visit(&self) {
        assert!(!self.inside.swap(true, Ordering::Relaxed), "two callbacks of one color overlap");
        // SAFETY: see above.
        unsafe { *self.plain.get() += 1 };
        self.inside.store(false, Ordering::Relaxed);
    }
}

#[test]
fn c1_callbacks_of_one_color_never_overlap() {
    const POSTERS: usize = 4;
    const EACH: usize = crate::support::rounds(20_000);
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let color = Color::new();
    let alone = Arc::new(Alone::default());
    let (tx, done) = collector::<()>();
    std::thread::scope(|scope| {
        for _ in 0..POSTERS {
            let (color, alone, tx) = (color.clone(), alone.clone(), tx.clone());
            scope.spawn(move || {
                for _ in 0..EACH {
                    let (alone, tx) = (alone.clone(), tx.clone());
                    color.post(move || {
                        alone.visit();
                        drop(tx);
                    });
                }
            });
        }
    });
    drop(tx);
    done.all();
    // SAFETY: all callbacks have ended.
    assert_eq!(unsafe { *alone.plain.get() }, (POSTERS * EACH) as u64);
}

#[test]
fn c1_different_colors_run_in_parallel() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    // Each waits for the other: only together can they end.
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let (tx, done) = collector();
    for _ in 0..2 {
        let (barrier, tx) = (barrier.clone(), tx.clone());
        Color::new().post(move || {
            barrier.wait();
            tx.send(()).unwrap();
        });
    }
    drop(tx);
    assert_eq!(done.all().len(), 2);
}

#[test]
fn c1_a_task_does_not_hold_its_color_across_an_await() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    let alone = Arc::new(Alone::default());
    let visits = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (alone, visits) = (alone.clone(), visits.clone());
            color.spawn(async move {
                for _ in 0..1_000 {
                    alone.visit();
                    visits.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(visits.load(Ordering::Relaxed), 8_000);
}

#[test]
fn c1_dropping_counts_as_running() {
    struct NoteColor(Color, std::sync::mpsc::Sender<bool>);
    impl Drop for NoteColor {
        fn drop(&mut self) {
            let _ = self.1.send(Color::current() == self.0);
        }
    }
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tx, dropped) = collector();
    // State that its last handle drops on a plain thread.
    let color = Color::new();
    drop(Colored::with_color(NoteColor(color.clone(), tx.clone()), &color));
    assert!(dropped.next());
    // A wrapped closure.
    let note = NoteColor(color.clone(), tx.clone());
    drop(color.wrap(move |()| assert!(!note.0.is_default())));
    assert!(dropped.next());
    // A canceled callback.
    let gate = crate::support::occupy(&color);
    let note = NoteColor(color.clone(), tx.clone());
    let posted = color.post_cancellable(move || drop(note));
    assert!(posted.cancel());
    gate.open();
    assert!(dropped.next());
    // An aborted task.
    let note = NoteColor(color.clone(), tx.clone());
    let task = color.spawn(async move {
        std::future::pending::<()>().await;
        drop(note);
    });
    task.abort();
    assert!(dropped.next());
    // The rest at shutdown: a queued closure and a waiting task.
    let gate = crate::support::occupy(&color);
    let note = NoteColor(color.clone(), tx.clone());
    color.post(move || drop(note));
    let note = NoteColor(color.clone(), tx);
    drop(color.spawn(async move {
        std::future::pending::<()>().await;
        drop(note);
    }));
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        gate.open();
    });
    drop(_entered);
    drop(runtime);
    stopper.join().unwrap();
    assert!(dropped.all().into_iter().all(|in_color| in_color));
}
