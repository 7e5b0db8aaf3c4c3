//! The shared parts of the models: a driver, logs that detect overlaps, and threads that a model
//! steps.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dapple_sched::model::{Model, ModelWorker};
use dapple_sched::{Barrier, Color, Driver};
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Runs a model in all interleavings with at most this many preemptions, and returns how many there
/// were.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
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

    fn barrier(&self) -> Option<&dyn Barrier> {
        Some(self)
    }

    fn shutdown(&self) {}
}

// SAFETY: a fence here, and one in place of the other side's compiler fence: one of the two sees
// the other.
unsafe impl Barrier for Parker {
    fn pass(&self) -> bool {
        // Together with the fence on the other side, this does the work of membarrier.
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        true
    }
}

pub(crate) fn driver(workers: usize) -> Arc<dyn Driver> {
    Arc::new(Parker((0..workers).map(|_| (Mutex::new(false), Condvar::new())).collect()))
}

pub(crate) fn model(workers: usize) -> Model {
    Model::new(workers, driver(workers))
}

/// The entries that a color's callbacks wrote. Not synchronized: loom fails the model if two
/// callbacks of the color overlap, or if the end of one does not happen before the start of the
/// next.
#[derive(Clone)]
pub(crate) struct Log(Arc<UnsafeCell<Vec<u32>>>);

// SAFETY: only callbacks of one color write it, and it is read when all workers have ended; loom
// checks it.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    pub(crate) fn new() -> Log {
        Log(Arc::new(UnsafeCell::new(Vec::new())))
    }

    pub(crate) fn add(&self, entry: u32) {
        // SAFETY: see the struct.
        self.0.with_mut(|log| unsafe { (*log).push(entry) });
    }

    /// Posts a callback that writes an entry, which the poster has written to memory of its own.
    pub(crate) fn post(&self, color: &Color, entry: u32) {
        let (log, parcel) = (self.clone(), Parcel(UnsafeCell::new(0)));
        parcel.0.with_mut(|parcel| {
            // SAFETY: no other thread has it yet.
            unsafe { *parcel = entry };
        });
        color.post(move || {
            let parcel = parcel;
            // SAFETY: the post has passed it on; loom checks it.
            log.add(parcel.0.with(|parcel| unsafe { *parcel }));
        });
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        // SAFETY: as above.
        self.0.with(|log| unsafe { (*log).clone() })
    }
}

/// The data that a poster gives to its callback. loom fails the model if posting does not order the
/// two.
struct Parcel(UnsafeCell<u32>);

// SAFETY: one thread at a time has it.
unsafe impl Send for Parcel {}

/// A point that threads pass in every order. loom remembers only the last access to a word, so a
/// thread that loads a word before it exchanges it hides an earlier load by another. Each thread
/// passes here first. Orders nothing.
#[derive(Clone)]
pub(crate) struct Crossing(Arc<loom::sync::atomic::AtomicUsize>);

impl Crossing {
    pub(crate) fn new() -> Crossing {
        Crossing(Arc::new(loom::sync::atomic::AtomicUsize::new(0)))
    }

    pub(crate) fn pass(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn spawn(&self, f: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
        let crossing = self.clone();
        thread::spawn(move || {
            crossing.pass();
            f();
        })
    }
}

/// Works until `done` is set, and sleeps meanwhile.
pub(crate) fn work_until(worker: &ModelWorker<'_>, done: &Flag) {
    while !done.is_set() {
        if !worker.step() {
            worker.sleep();
        }
    }
    worker.drain();
}

/// Set by a callback, read by the worker that ran it.
#[derive(Clone)]
pub(crate) struct Flag(Arc<AtomicUsize>);

impl Flag {
    pub(crate) fn new() -> Flag {
        Flag(Arc::new(AtomicUsize::new(0)))
    }

    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

/// Runs the rest, and takes linked colors. The last step of a worker may leave nodes in its own
/// queue, so it takes two sweeps without a turn to know that there are none.
pub(crate) fn drain(model: &Model) {
    let mut quiet = 0;
    while quiet < 2 {
        let turns = (0..model.handle().workers()).filter(|&worker| {
            model.worker(worker, |worker| {
                let stepped = worker.step();
                worker.drain();
                stepped
            })
        });
        quiet = if turns.count() > 0 { 0 } else { quiet + 1 };
    }
}

/// No callback panicked, and every color was freed. The caller has dropped its handles.
pub(crate) fn finish(model: &Model) {
    drain(model);
    let panics: u64 = model.handle().stats().workers.iter().map(|worker| worker.panics).sum();
    assert_eq!(panics, 0, "a callback panicked");
    assert_eq!(model.references(), 1, "colors that were not freed");
}

pub(crate) fn in_order(log: &[u32], parts: &[&[u32]]) {
    assert_eq!(log.len(), parts.iter().map(|part| part.len()).sum::<usize>(), "{log:?}");
    for part in parts {
        let seen: Vec<u32> = log.iter().copied().filter(|entry| part.contains(entry)).collect();
        assert_eq!(seen, *part, "in {log:?}");
    }
}

/// Counts how often it was dropped.
pub(crate) struct Count(pub(crate) Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes its entry when it is dropped.
pub(crate) struct Entry {
    pub(crate) log: Log,
    pub(crate) entry: u32,
    pub(crate) gone: Arc<AtomicUsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.log.add(self.entry);
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets a thread of the model wait for a future.
struct Signal(Mutex<bool>, Condvar);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// A future that a thread of the model has begun to wait for.
pub(crate) struct Wait<F: Future> {
    future: Pin<Box<F>>,
    signal: Arc<Signal>,
}

impl<F: Future> Wait<F> {
    /// Polls once.
    pub(crate) fn begin(future: F) -> Result<F::Output, Wait<F>> {
        let mut wait = Wait { future: Box::pin(future), signal: Arc::new(Signal(Mutex::new(false), Condvar::new())) };
        match wait.poll() {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => Err(wait),
        }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.signal.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Sleeps until the future is ready.
    pub(crate) fn end(mut self) -> F::Output {
        loop {
            let mut woken = self.signal.0.lock().unwrap();
            while !*woken {
                woken = self.signal.1.wait(woken).unwrap();
            }
            *woken = false;
            drop(woken);
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
        }
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    Wait::begin(future).unwrap_or_else(Wait::end)
}

/// A future that is woken by another thread.
pub(crate) struct Event(Mutex<(bool, Option<Waker>)>);

impl Event {
    pub(crate) fn new() -> Arc<Event> {
        Arc::new(Event(Mutex::new((false, None))))
    }

    pub(crate) fn set(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}
