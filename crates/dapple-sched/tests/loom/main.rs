//! The smallest protocols of the shipped scheduler, in every interleaving and memory order that loom can tell apart.
//!
//! `RUSTFLAGS="--cfg dapple_loom" cargo test -p dapple-sched --release --test loom`
//!
//! Each model names in a comment a deliberate bug that it was seen to catch. [`Log`] sees overlaps and missing order
//! between callbacks (C1), `finish` sees lost callbacks and colors that were freed twice or never.

#![cfg(dapple_loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dapple_sched::model::{Model, ModelWorker};
use dapple_sched::{Color, Colored, Driver};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Runs a model in all interleavings with at most so many preemptions, and says how many there were.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let started = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions in {:?}", executions.load(Ordering::Relaxed), started.elapsed());
}

/// A driver without events: workers sleep on loom's condition variables.
struct Parker(Vec<(Mutex<bool>, Condvar)>);

impl Driver for Parker {
    fn park(&self, worker: usize, _timeout: Option<Duration>) {
        let (token, changed) = &self.0[worker];
        let mut token = token.lock().unwrap();
        while !*token {
            token = changed.wait(token).unwrap();
        }
        *token = false;
    }

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, worker: usize) {
        *self.0[worker].0.lock().unwrap() = true;
        self.0[worker].1.notify_one();
    }

    fn shutdown(&self) {}
}

fn model(workers: usize) -> Model {
    Model::new(workers, Arc::new(Parker((0..workers).map(|_| (Mutex::new(false), Condvar::new())).collect())))
}

/// What a color's callbacks wrote. Not synchronized: loom fails the model if two callbacks of the color overlap, or if
/// the end of one does not happen before the start of the next.
#[derive(Clone)]
struct Log(Arc<UnsafeCell<Vec<u32>>>);

// SAFETY: written by callbacks of one color only, and read when all workers are through; loom checks it.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    fn new() -> Log {
        Log(Arc::new(UnsafeCell::new(Vec::new())))
    }

    fn add(&self, entry: u32) {
        // SAFETY: see the struct.
        self.0.with_mut(|log| unsafe { (*log).push(entry) });
    }

    fn post(&self, color: &Color, entry: u32) {
        let log = self.clone();
        color.post(move || log.add(entry));
    }

    fn all(&self) -> Vec<u32> {
        // SAFETY: as above.
        self.0.with(|log| unsafe { (*log).clone() })
    }
}

/// A place that threads pass in every order. loom remembers only the last access to a word, so a thread that loads a
/// word before it exchanges it hides an earlier load by another: each thread passes here before it does something.
/// Orders nothing.
#[derive(Clone)]
struct Crossing(Arc<loom::sync::atomic::AtomicUsize>);

impl Crossing {
    fn new() -> Crossing {
        Crossing(Arc::new(loom::sync::atomic::AtomicUsize::new(0)))
    }

    fn pass(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn spawn(&self, f: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
        let crossing = self.clone();
        thread::spawn(move || {
            crossing.pass();
            f();
        })
    }
}

/// Works until `done` is set, and sleeps meanwhile.
fn work_until(worker: &ModelWorker<'_>, done: &Flag) {
    while !done.is_set() {
        if !worker.step() {
            worker.sleep();
        }
    }
    worker.drain();
}

/// Set by a callback, read by the worker that ran it.
#[derive(Clone)]
struct Flag(Arc<AtomicUsize>);

impl Flag {
    fn new() -> Flag {
        Flag(Arc::new(AtomicUsize::new(0)))
    }

    fn set(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

/// Runs what is left, and takes what is linked.
fn drain(model: &Model) {
    for _ in 0..2 {
        for worker in 0..model.handle().workers() {
            model.worker(worker, |worker| worker.drain());
        }
    }
}

/// Nothing panicked inside of callbacks, and every color was freed. The caller has dropped his handles.
fn finish(model: &Model) {
    drain(model);
    let panics: u64 = model.handle().stats().workers.iter().map(|worker| worker.panics).sum();
    assert_eq!(panics, 0, "a callback panicked");
    assert_eq!(model.references(), 1, "colors that were not freed");
}

fn in_order(log: &[u32], parts: &[&[u32]]) {
    assert_eq!(log.len(), parts.iter().map(|part| part.len()).sum::<usize>(), "{log:?}");
    for part in parts {
        let seen: Vec<u32> = log.iter().copied().filter(|entry| part.contains(entry)).collect();
        assert_eq!(seen, *part, "in {log:?}");
    }
}

// The inbox against the running worker and its posts to itself.
//
// Caught: a color that posts to itself without draining its inbox first (order); an early drain that clears NOTIFIED
// (linked twice, the list becomes a ring).
#[test]
fn foreign_posts_meet_the_running_worker() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let log = Log::new();
        let posted = Arc::new(AtomicBool::new(false));
        let poster = crossing.spawn({
            let (color, log, posted) = (color.clone(), log.clone(), posted.clone());
            move || {
                log.post(&color, 1);
                posted.store(true, Ordering::Release);
                log.post(&color, 2);
            }
        });
        crossing.pass();
        let after_first = Flag::new();
        model.worker(0, |worker| {
            let (inner, again, after_first) = (log.clone(), color.clone(), after_first.clone());
            color.post(move || {
                inner.add(11);
                if posted.load(Ordering::Acquire) {
                    after_first.set();
                }
                inner.post(&again, 12);
            });
            worker.drain();
            poster.join().unwrap();
            worker.drain();
        });
        let log = log.all();
        in_order(&log, &[&[1, 2], &[11, 12]]);
        let place = |entry| log.iter().position(|&other| other == entry);
        assert!(!after_first.is_set() || place(1) < place(12), "{log:?}");
        drop(color);
        finish(&model);
    });
}

// Two posters race for the notification; what happens before is run before.
//
// Caught: `push_inbox` that tells every poster to link (linked twice, the list becomes a ring).
#[test]
fn two_posters_share_an_inbox() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let log = Log::new();
        let poster = crossing.spawn({
            let (color, log) = (color.clone(), log.clone());
            move || log.post(&color, 1)
        });
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        log.post(&color, 11);
        poster.join().unwrap();
        log.post(&color, 2);
        worker.join().unwrap();
        drain(&model);
        in_order(&log.all(), &[&[1, 2], &[11, 2][..1]]);
        assert_eq!(log.all()[2], 2, "{:?}", log.all());
        drop(color);
        finish(&model);
    });
}

// A thief takes the run queue and the news of a worker that is said to be in a long callback, but is not.
//
// Caught: `steal_news` that empties the inbox of a color that runs (data race), or takes a color without moving its
// home (data race); `take_news` that drops colors whose home has moved (lost callback).
#[test]
fn an_overdue_worker_is_robbed() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(0);
        let log = Log::new();
        log.post(&color, 1);
        model.mark_overdue(0);
        let thief = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.steal();
                    worker.drain();
                });
            }
        });
        let poster = crossing.spawn({
            let (color, log) = (color.clone(), log.clone());
            move || log.post(&color, 2)
        });
        crossing.pass();
        model.worker(0, |worker| {
            worker.drain();
            thief.join().unwrap();
            poster.join().unwrap();
            worker.drain();
        });
        drain(&model);
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// The same with a color that is pinned: the thief takes nothing, and what he puts back is found.
//
// Caught: `steal_news` that forgets about the pin (it runs on the thief), or that does not put it back (lost callback).
#[test]
fn what_is_pinned_is_left_to_an_overdue_worker() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().pinned_color(0);
        let log = Log::new();
        let post = |entry: u32| {
            let (log, handle) = (log.clone(), model.handle());
            move || {
                assert_eq!(handle.worker_index(), Some(0));
                log.add(entry);
            }
        };
        color.post(post(1));
        model.mark_overdue(0);
        let thief = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.steal();
                    worker.drain();
                });
            }
        });
        let poster = crossing.spawn({
            let (color, second) = (color.clone(), post(2));
            move || color.post(second)
        });
        crossing.pass();
        model.worker(0, |worker| {
            worker.drain();
            thief.join().unwrap();
            poster.join().unwrap();
            worker.drain();
        });
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// A color moves home to the worker that posts to it, while that worker posts.
//
// Caught, in the shipped code: a home moved without the lock of the new home (data race). And: `take_news` that drops
// colors whose home has moved (lost callback).
#[test]
fn a_color_moves_to_its_poster() {
    check(4, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(0);
        let log = Log::new();
        let poster = crossing.spawn({
            let (model, color, log, passing) = (model.clone(), color.clone(), log.clone(), crossing.clone());
            move || {
                model.worker(1, |worker| {
                    log.post(&color, 1);
                    passing.pass();
                    log.post(&color, 2);
                    passing.pass();
                    worker.drain();
                });
            }
        });
        crossing.pass();
        model.worker(0, |worker| {
            worker.drain();
            crossing.pass();
            worker.drain();
            poster.join().unwrap();
        });
        drain(&model);
        in_order(&log.all(), &[&[1, 2]]);
        drop(color);
        finish(&model);
    });
}

// A post from outside against a worker that falls asleep.
//
// Caught: `link_remote` without unpark, and `fall_asleep` by a load and a store instead of one exchange (deadlock).
#[test]
fn a_post_wakes_a_sleeper() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        color.post(move || done.set());
        drop(color);
        worker.join().unwrap();
        finish(&model);
    });
}

// What came while a color was held is queued when it is released, and its worker woken.
//
// Caught: `release` without kick (deadlock).
#[test]
fn a_release_wakes_a_sleeper() {
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
        state.try_with(|()| state.post(move |()| done.set())).expect("nobody else asks");
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

/// Counts how often it was dropped.
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes its entry when it is dropped.
struct Entry {
    log: Log,
    entry: u32,
    gone: Arc<AtomicUsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.log.add(self.entry);
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

// Posts race with the end of a worker: each closure is run or dropped, once, while its color is held.
//
// Caught: `link_remote` that takes CLOSED for linked (closures neither run nor dropped).
#[test]
fn a_post_meets_the_end_of_a_worker() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        let (log, gone) = (Log::new(), Arc::new(AtomicUsize::new(0)));
        let post = |entry| {
            let entry = Entry { log: log.clone(), entry, gone: gone.clone() };
            color.post(move || drop(entry));
        };
        post(1);
        let worker = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(0, |worker| {
                    worker.step();
                    worker.exit();
                });
            }
        });
        crossing.pass();
        post(2);
        post(3);
        worker.join().unwrap();
        assert_eq!(gone.load(Ordering::Relaxed), 3);
        in_order(&log.all(), &[&[1, 2, 3]]);
        drop(color);
        finish(&model);
    });
}

// A color is stolen from a worker that ends, while somebody who has just posted is about to link it there.
//
// Caught, in the shipped code: `dispose::notified` that trusted the home it had read before (it found the color
// `Running`).
#[test]
fn a_post_meets_the_end_of_the_former_home() {
    check(3, || {
        let model = model(2);
        let crossing = Crossing::new();
        let color = model.handle().new_color_at(0);
        let log = Log::new();
        model.worker(0, |_| log.post(&color, 1));
        model.mark_overdue(0);
        let thief = crossing.spawn({
            let model = model.clone();
            move || {
                model.worker(1, |worker| {
                    worker.steal();
                    worker.step();
                    worker.exit();
                });
            }
        });
        let home = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.exit())
        });
        crossing.pass();
        log.post(&color, 2);
        thief.join().unwrap();
        home.join().unwrap();
        drop(color);
        finish(&model);
    });
}

/// Lets a thread of the model wait for a future.
struct Signal(Mutex<bool>, Condvar);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let signal = Arc::new(Signal(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(signal.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = signal.0.lock().unwrap();
        while !*woken {
            woken = signal.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

// A foreign executor waits for a state while its color runs callbacks.
//
// Caught: `hand_over` without wake (deadlock).
#[test]
fn a_wait_is_granted() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        state.post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        assert_eq!(block_on(state.with(|n| *n)), 1, "after what was posted before");
        state.post(move |_| done.set());
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// The future is dropped while its color is being handed over.
//
// Caught: a dropped future that keeps its grant, and `cancel` that looks for GRANTED before QUEUED (deadlock).
#[test]
fn a_wait_is_canceled() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        state.post(|n| *n += 1);
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        {
            let mut wait = pin!(state.with(|n| *n += 10));
            let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        state.post(move |n| {
            assert!(*n == 1 || *n == 11);
            done.set();
        });
        worker.join().unwrap();
        drop(state);
        finish(&model);
    });
}

// A task waits for a state while somebody posts to it: it is polled in the state's turn, or handed the color.
//
// Caught, in the shipped code: a turn that ended at a waiter and forgot him because something new had arrived
// (deadlock).
#[test]
fn a_task_waits_for_a_state() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let done = Flag::new();
        let state = Colored::with_color(0, &model.handle().new_color());
        let task = model.handle().spawn({
            let (state, done) = (state.clone(), done.clone());
            async move {
                let seen = state.with(|n| *n).await;
                done.set();
                seen
            }
        });
        // Behind the task, which so finds the state taken and queues behind this.
        let passing = crossing.clone();
        state.post(move |n| {
            passing.pass();
            *n += 1;
        });
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        task.color().post(|| ());
        crossing.pass();
        state.post(|n| *n += 10);
        worker.join().unwrap();
        model.worker(0, |worker| worker.drain());
        assert!([1, 11].contains(&block_on(task).unwrap()));
        drop(state);
        finish(&model);
    });
}

/// A future that is woken by another thread.
struct Event(Mutex<(bool, Option<Waker>)>);

impl Event {
    fn new() -> Arc<Event> {
        Arc::new(Event(Mutex::new((false, None))))
    }

    fn set(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

// A wake races with the poll, and the end of the task with whoever joins it.
//
// Caught: SCHEDULED cleared after the poll instead of before (deadlock); DONE set without release (data race).
#[test]
fn a_wake_meets_the_poll() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let event = Event::new();
        let task = model.handle().spawn({
            let event = event.clone();
            async move {
                std::future::poll_fn(|cx| event.poll(cx)).await;
                7
            }
        });
        let color = task.color().clone();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        crossing.pass();
        event.set();
        assert_eq!(block_on(task).unwrap(), 7);
        color.post(move || done.set());
        worker.join().unwrap();
        drop(color);
        finish(&model);
    });
}

// An abort races with a wake and with the poll; the handle tells which one came first.
//
// Caught: DONE set without release (data race); `schedule` that queues a task that is queued (crash).
#[test]
fn an_abort_meets_a_wake() {
    check(3, || {
        let model = model(1);
        let crossing = Crossing::new();
        let (event, gone) = (Event::new(), Arc::new(AtomicUsize::new(0)));
        let task = model.handle().spawn({
            let (event, count) = (event.clone(), Count(gone.clone()));
            async move {
                let _count = count;
                std::future::poll_fn(|cx| event.poll(cx)).await;
            }
        });
        let color = task.color().clone();
        let done = Flag::new();
        let worker = crossing.spawn({
            let (model, done) = (model.clone(), done.clone());
            move || model.worker(0, |worker| work_until(worker, &done))
        });
        let waker = crossing.spawn({
            let event = event.clone();
            move || event.set()
        });
        crossing.pass();
        task.abort();
        if let Err(error) = block_on(task) {
            assert!(error.is_aborted());
        }
        assert_eq!(gone.load(Ordering::Relaxed), 1);
        color.post(move || done.set());
        worker.join().unwrap();
        waker.join().unwrap();
        drop((event, color));
        finish(&model);
    });
}

// The last handle of a named color goes while its turn ends and while somebody looks the name up.
//
// Caught: `remove_unused` that does not look at the handles again under the lock, `is_dead` that ignores the inbox, and
// the last handle given up without the home lock (each a use after free).
#[test]
fn a_name_is_looked_up_while_its_color_dies() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().named_color(7);
        let log = Log::new();
        log.post(&color, 1);
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        crossing.pass();
        drop(color);
        let again = model.handle().named_color(7);
        log.post(&again, 2);
        drop(again);
        worker.join().unwrap();
        finish(&model);
    });
}

// The last two handles of a color go at the same time, while its turn ends.
//
// Caught: `is_dead` that ignores the inbox (use after free).
#[test]
fn two_handles_go_at_once() {
    check(4, || {
        let model = model(1);
        let crossing = Crossing::new();
        let color = model.handle().new_color();
        color.post(|| ());
        let worker = crossing.spawn({
            let model = model.clone();
            move || model.worker(0, |worker| worker.drain())
        });
        let other = crossing.spawn({
            let color = color.clone();
            move || drop(color)
        });
        crossing.pass();
        drop(color);
        other.join().unwrap();
        worker.join().unwrap();
        finish(&model);
    });
}
