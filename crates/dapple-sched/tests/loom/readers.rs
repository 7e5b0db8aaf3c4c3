//! A color held for reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple_sched::Colored;
use loom::cell::UnsafeCell;

use crate::support::{Crossing, Flag, Wait, check, drain, finish, model, work_until};

/// The data that readers read and writers change. loom fails the model if a writer overlaps another
/// visitor, or if their accesses are not ordered.
#[derive(Clone)]
pub(crate) struct Page(Arc<UnsafeCell<u32>>);

// SAFETY: touched while its color is held, for writing or for reading; loom checks it.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    pub(crate) fn new() -> Page {
        Page(Arc::new(UnsafeCell::new(0)))
    }

    pub(crate) fn read(&self) -> u32 {
        // SAFETY: see the struct.
        self.0.with(|page| unsafe { *page })
    }

    pub(crate) fn write(&self, entry: u32) {
        // SAFETY: as above.
        self.0.with_mut(|page| unsafe { *page = entry });
    }
}

/// Whether two readers were ever seen inside at once, over all interleavings of a model.
#[derive(Clone)]
struct Overlap {
    inside: Arc<loom::sync::atomic::AtomicUsize>,
    seen: Arc<AtomicUsize>,
}

impl Overlap {
    fn read<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.inside.fetch_add(1, Ordering::Relaxed) == 1 {
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        let result = f();
        self.inside.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

// A writer is posted while a reader is inside: the reader's end wakes the worker for it.
//
// Caught: `release` without kick (deadlock).
#[test]
fn the_last_reader_wakes_the_writer() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color((), &model.handle().new_color());
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        state.try_read(|()| state.post(move |()| done.set())).expect("nobody writes yet");
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// Two readers hold a color in line; one of them is a worker that then runs the writer posted
// meanwhile, but only after both have left.
//
// Caught: readers that are not counted, and a writer that is let in with readers (data race).
#[test]
fn a_writer_waits_for_both_readers() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    check(3, move || {
        let model = model(1);
        let crossing = Crossing::new();
        let overlap = Overlap { inside: Arc::new(loom::sync::atomic::AtomicUsize::new(0)), seen: counted.clone() };
        let page = Page::new();
        let state = Colored::with_color((), &model.handle().new_color());
        let reader = crossing.spawn({
            let (state, page, overlap) = (state.clone(), page.clone(), overlap.clone());
            move || {
                // Busy, if the writer came first.
                let _ = state.try_read(|()| overlap.read(|| page.read()));
            }
        });
        crossing.pass();
        let writer = page.clone();
        model.worker(0, |worker| {
            // Busy, if the other thread has the lock at this moment.
            let _ = state.try_read(|()| overlap.read(|| page.read()));
            state.post(move |()| writer.write(1));
            worker.drain();
        });
        reader.join().unwrap();
        drain(&model);
        assert_eq!(page.read(), 1);
        drop(state);
        finish(&model);
    });
    assert!(seen.load(Ordering::Relaxed) > 0, "readers never overlapped");
}

// Two readers on other executors wait after one writer and before another: they are let in
// together, and the second writer follows after both have left.
//
// Caught: `admit_readers` that lets in one of two (the second writer overtakes, or none ever
// comes).
#[test]
fn a_chain_of_readers_stands_between_writers() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    check(2, move || {
        let model = model(1);
        let crossing = Crossing::new();
        let overlap = Overlap { inside: Arc::new(loom::sync::atomic::AtomicUsize::new(0)), seen: counted.clone() };
        let page = Page::new();
        let state = Colored::with_color((), &model.handle().new_color());
        let (first, second) = (page.clone(), page.clone());
        state.post(move |()| first.write(1));
        let [one, other] = [(); 2].map(|()| {
            let (state, page, overlap) = (state.clone(), page.clone(), overlap.clone());
            let read = async move { state.read(|()| overlap.read(|| page.read())).await };
            Wait::begin(read).err().expect("a writer waits before it")
        });
        state.post(move |()| second.write(2));
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        let reader = crossing.spawn(move || assert_eq!(other.end(), 1, "between the writers"));
        crossing.pass();
        assert_eq!(one.end(), 1, "between the writers");
        reader.join().unwrap();
        worker.join().unwrap();
        drain(&model);
        assert_eq!(page.read(), 2);
        drop(state);
        finish(&model);
    });
    assert!(seen.load(Ordering::Relaxed) > 0, "readers never overlapped");
}

// The future of a read is dropped while the color is being handed over to it.
//
// Caught: a canceled read that stays counted (the second writer never runs).
#[test]
fn a_read_is_canceled() {
    check(2, || {
        let model = model(1);
        let crossing = Crossing::new();
        let page = Page::new();
        let state = Colored::with_color((), &model.handle().new_color());
        let first = page.clone();
        state.post(move |()| first.write(1));
        let [canceled, other] = [(); 2].map(|()| {
            let (state, page) = (state.clone(), page.clone());
            let read = async move { state.read(|()| page.read()).await };
            Wait::begin(read).err().expect("a writer waits before it")
        });
        let second = page.clone();
        state.post(move |()| second.write(2));
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        let reader = crossing.spawn(move || assert_eq!(other.end(), 1, "between the writers"));
        crossing.pass();
        drop(canceled);
        reader.join().unwrap();
        worker.join().unwrap();
        drain(&model);
        assert_eq!(page.read(), 2);
        drop(state);
        finish(&model);
    });
}

// A task that waits for a read is aborted while the color is being handed over to it, next to
// another reader.
//
// Caught, in the shipped code: a granted read that was returned as if it were a hold (a writer is
// let in with the other reader).
#[test]
fn a_read_of_a_task_is_aborted() {
    check(2, || {
        let model = model(2);
        let crossing = Crossing::new();
        let page = Page::new();
        // Pinned, because it would otherwise move to the worker of the task.
        let state = Colored::with_color((), &model.handle().pinned_color(0));
        let home = model.handle().new_color_at(1);
        let first = page.clone();
        state.post(move |()| first.write(1));
        let task = home.spawn({
            let (state, page) = (state.clone(), page.clone());
            async move { state.read(|()| page.read()).await }
        });
        model.worker(1, |worker| worker.drain());
        let other = {
            let (state, page) = (state.clone(), page.clone());
            Wait::begin(async move { state.read(|()| page.read()).await }).err().expect("a writer waits before it")
        };
        let second = page.clone();
        state.post(move |()| second.write(2));
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        let reader = crossing.spawn(move || assert_eq!(other.end(), 1, "between the writers"));
        crossing.pass();
        task.abort();
        reader.join().unwrap();
        worker.join().unwrap();
        drain(&model);
        assert_eq!(page.read(), 2);
        drop((task, home, state));
        finish(&model);
    });
}
