//! The shared parts of the models: their number of runs, a runtime with threads of the model as
//! workers, and logs.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dapple_sched::model::Model;
use dapple_sched::{Barrier, Color, Driver, Handle};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner, thread};

/// Runs a model under this many schedules, half of them random, half with few, well-placed
/// preemptions.
///
/// `DAPPLE_SHUTTLE_PERCENT` scales the number. With `DAPPLE_SHUTTLE_REPLAY` set to the schedule
/// that a failure printed, the model runs once, as it did then.
pub(crate) fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("DAPPLE_SHUTTLE_REPLAY") {
        return shuttle::replay(model, &schedule);
    }
    let percent = std::env::var("DAPPLE_SHUTTLE_PERCENT").map_or(100, |text| text.parse().expect("a number"));
    let half = (schedules * percent).div_ceil(200);
    let model = Arc::new(model);
    let random = model.clone();
    let started = std::time::Instant::now();
    let mut config = Config::default();
    config.stack_size = STACK_BYTES;
    let ran = Runner::new(RandomScheduler::new(half), config.clone()).run(move || random())
        + Runner::new(PctScheduler::new(PREEMPTIONS, half), config).run(move || model());
    println!("{ran} schedules in {:?}", started.elapsed());
}

/// Nested turns, each with a callback of a test build.
const STACK_BYTES: usize = 0x1_0000;

/// Of the schedules with few preemptions.
const PREEMPTIONS: usize = 3;

/// A driver without events: workers sleep on shuttle's condition variables.
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

// SAFETY: in this model memory is sequentially consistent.
unsafe impl Barrier for Parker {
    fn pass(&self) -> bool {
        // Memory is sequentially consistent here.
        true
    }
}

/// A runtime with threads of the model as workers.
pub(crate) struct Running {
    pub(crate) model: Model,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(workers: usize) -> Running {
        let parker = Parker((0..workers).map(|_| (Mutex::new(false), Condvar::new())).collect());
        Running::of(workers, Model::new(workers, Arc::new(parker)))
    }

    /// Workers that come and go.
    pub(crate) fn with_rests(workers: usize) -> Running {
        let parker = Parker((0..workers).map(|_| (Mutex::new(false), Condvar::new())).collect());
        Running::of(workers, Model::with_rests(workers, Arc::new(parker)))
    }

    fn of(workers: usize, model: Model) -> Running {
        let threads = (0..workers)
            .map(|index| {
                let model = model.clone();
                thread::spawn(move || model.worker(index, |worker| worker.run()))
            })
            .collect();
        Running { model, threads }
    }

    pub(crate) fn color(&self, home: usize) -> Color {
        self.model.handle().new_color_at(home)
    }

    /// Stops the workers while everything else continues. The caller has dropped its handles when
    /// this returns.
    pub(crate) fn stop(mut self) -> Model {
        self.model.stop();
        self.threads.drain(..).for_each(|worker| worker.join().unwrap());
        self.model
    }

    pub(crate) fn finish(self) {
        finish(&self.stop());
    }
}

/// Makes each of three colors log 1 to 3, posted by the returned thread, and 11 and 12, posted by
/// the color before it.
pub(crate) fn post_around(colors: &[Color], logs: &[Log]) -> thread::JoinHandle<()> {
    let (ours, theirs) = (colors.to_vec(), logs.to_vec());
    let poster = thread::spawn(move || {
        for n in 1..4 {
            (0..3).for_each(|color| theirs[color].post(&ours[color], n));
        }
    });
    for n in 0..3 {
        let (log, next) = (logs[(n + 1) % 3].clone(), colors[(n + 1) % 3].clone());
        colors[n].post(move || (11..13).for_each(|n| log.post(&next, n)));
    }
    poster
}

/// Runs a scene in a runtime of two workers, and checks that it leaves nothing.
pub(crate) fn scene(scene: impl Fn(&Handle)) {
    let running = Running::start(2);
    let handle = running.model.handle();
    let entered = handle.enter();
    scene(&handle);
    drop(entered);
    drop(handle);
    running.finish();
}

/// Starts a thread of the model that has entered the runtime.
pub(crate) fn with<T: Send + 'static>(
    handle: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let handle = handle.clone();
    thread::spawn(move || {
        let _entered = handle.enter();
        work()
    })
}

/// Nothing panicked inside of callbacks, and every color was freed.
pub(crate) fn finish(model: &Model) {
    finish_after(model, 0);
}

/// This many callbacks panicked, as intended, and every color was freed.
pub(crate) fn finish_after(model: &Model, panics: u64) {
    let seen: u64 = model.handle().stats().workers.iter().map(|worker| worker.panics).sum();
    assert_eq!(seen, panics, "panics inside of callbacks");
    assert_eq!(model.references(), 1, "colors that were not freed");
}

/// Checks that callbacks of one color do not overlap (C1), run in order (C2) and are not lost (C7).
#[derive(Clone)]
pub(crate) struct Log(Arc<(AtomicBool, Mutex<Vec<u32>>, Condvar)>);

impl Log {
    pub(crate) fn new() -> Log {
        Log(Arc::new((AtomicBool::new(false), Mutex::new(Vec::new()), Condvar::new())))
    }

    pub(crate) fn add(&self, entry: u32) {
        assert!(!self.0.0.swap(true, Ordering::SeqCst), "two callbacks of one color overlap");
        thread::yield_now();
        self.0.1.lock().unwrap().push(entry);
        self.0.2.notify_all();
        assert!(self.0.0.swap(false, Ordering::SeqCst), "two callbacks of one color overlap");
    }

    pub(crate) fn post(&self, color: &Color, entry: u32) {
        let log = self.clone();
        color.post(move || log.add(entry));
    }

    /// Waits for this many entries; a lost one is a deadlock.
    pub(crate) fn wait(&self, count: usize) -> Vec<u32> {
        let mut entries = self.0.1.lock().unwrap();
        while entries.len() < count {
            entries = self.0.2.wait(entries).unwrap();
        }
        entries.clone()
    }
}

/// Each part is in order, and there is nothing else.
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
        self.0.fetch_add(1, Ordering::SeqCst);
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

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
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
