//! The alarm and the monitor alone: two workers that fall asleep, wake and stay in a callback,
//! while the monitor checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use dapple_sched::Driver;
use dapple_sched::model::Model;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::support::{check, finish};

/// A driver that counts the monitor's checks. Its counters are not a part of the model, so that
/// they add no schedules.
#[derive(Default)]
struct Watched {
    tokens: [Signal; 2],
    /// Worker 0 is in a long callback.
    busy: AtomicBool,
    /// Worker 1 sleeps, and could help.
    asleep: AtomicBool,
    /// Looks while both were so.
    looks: AtomicUsize,
}

#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Signal {
    fn set(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    /// `seen` is called at the store, before others run.
    fn wait(&self, seen: impl FnOnce()) {
        let mut set = self.0.lock().unwrap();
        while !*set {
            set = self.1.wait(set).unwrap();
        }
        *set = false;
        seen();
    }
}

impl Driver for Watched {
    fn park(&self, worker: usize, _timeout: Option<Duration>) {
        if worker == HELPER {
            self.asleep.store(true, SeqCst);
        }
        self.tokens[worker].wait(|| {
            if worker == HELPER {
                self.asleep.store(false, SeqCst);
                self.looks.store(0, SeqCst);
            }
        });
    }

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, worker: usize) {
        if worker == HELPER {
            self.asleep.store(false, SeqCst);
            self.looks.store(0, SeqCst);
        }
        self.tokens[worker].set();
    }

    /// The monitor asks once a look.
    fn cpu_time(&self, worker: usize) -> Option<Duration> {
        if worker == BUSY && self.busy.load(SeqCst) && self.asleep.load(SeqCst) {
            let looks = self.looks.fetch_add(1, SeqCst) + 1;
            assert!(looks <= LOOKS_MAX, "a sleeper was not woken by {LOOKS_MAX} looks at a worker that stays busy");
        }
        None
    }

    fn shutdown(&self) {}
}

struct Scene {
    model: Model,
    driver: Arc<Watched>,
    monitor: thread::JoinHandle<()>,
}

impl Scene {
    fn start() -> Scene {
        let driver = Arc::new(Watched::default());
        let model = Model::with_rests(2, driver.clone());
        let monitor = thread::spawn(model.monitor());
        Scene { model, driver, monitor }
    }

    fn end(self, helper: thread::JoinHandle<()>) {
        // The busy worker may have run the last callback, and ended, before this thread had linked
        // its color into the remote list.
        self.model.worker(BUSY, |worker| worker.drain());
        self.model.stop();
        helper.join().unwrap();
        self.monitor.join().unwrap();
        finish(&self.model);
    }

    /// Worker 1: sleeps, and when the monitor wakes it for worker 0, lets worker 0's callback end.
    fn helper(&self, stopped: &Arc<AtomicBool>, served: &Arc<Signal>) -> thread::JoinHandle<()> {
        let (model, stopped, served) = (self.model.clone(), stopped.clone(), served.clone());
        let driver = self.driver.clone();
        // Awake until the other one is busy, so that the monitor may have gone to sleep because all
        // workers were awake.
        let late = thread_rng().gen_bool(0.5);
        thread::spawn(move || {
            model.worker(HELPER, |worker| {
                while !stopped.load(SeqCst) {
                    while late && !driver.busy.load(SeqCst) && !stopped.load(SeqCst) {
                        thread::yield_now();
                    }
                    worker.sleep();
                    if model.is_overdue(BUSY) {
                        served.set();
                    }
                }
            });
        })
    }
}

// A worker sleeps, has a short turn, and then a callback that does not end until the other worker,
// which the monitor has to wake, has seen the mark; all of that twice.
//
// Caught: a worker that falls asleep and does not call the monitor (deadlock); a mark that names
// another turn (no end).
#[test]
fn a_worker_that_stays_busy_is_not_missed() {
    check(3_000, || {
        let scene = Scene::start();
        let (stopped, served) = (Arc::new(AtomicBool::new(false)), Arc::new(Signal::default()));
        let done = Arc::new(AtomicUsize::new(0));
        let helper = scene.helper(&stopped, &served);
        let color = scene.model.handle().new_color_at(BUSY);
        let busy = thread::spawn({
            let (model, done) = (scene.model.clone(), done.clone());
            move || {
                model.worker(BUSY, |worker| {
                    while done.load(SeqCst) < ROUNDS {
                        if !worker.step() {
                            worker.sleep();
                        }
                    }
                    worker.drain();
                });
            }
        });
        for _ in 0..ROUNDS {
            color.post(thread::yield_now);
            let (driver, served, done) = (scene.driver.clone(), served.clone(), done.clone());
            color.post(move || {
                driver.looks.store(0, SeqCst);
                driver.busy.store(true, SeqCst);
                served.wait(|| ());
                driver.busy.store(false, SeqCst);
                done.fetch_add(1, SeqCst);
            });
        }
        busy.join().unwrap();
        stopped.store(true, SeqCst);
        drop(color);
        scene.end(helper);
    });
}

// The helper rests at first, so that the monitor may have found that none could help. It counts
// again when it works again.
//
// Caught: a number of workers that rises and wakes none of them (deadlock); a worker that still
// counts as resting (deadlock).
#[test]
fn a_worker_that_works_again_helps() {
    check(3_000, || {
        let scene = Scene::start();
        let (stopped, served) = (Arc::new(AtomicBool::new(false)), Arc::new(Signal::default()));
        scene.model.set_active(1);
        let helper = scene.helper(&stopped, &served);
        let done = Arc::new(AtomicBool::new(false));
        let color = scene.model.handle().new_color_at(BUSY);
        let busy = thread::spawn({
            let (model, done) = (scene.model.clone(), done.clone());
            move || {
                model.worker(BUSY, |worker| {
                    while !done.load(SeqCst) {
                        if !worker.step() {
                            worker.sleep();
                        }
                    }
                    worker.drain();
                });
            }
        });
        let (driver, let_go) = (scene.driver.clone(), served.clone());
        color.post(move || {
            driver.busy.store(true, SeqCst);
            let_go.wait(|| ());
            driver.busy.store(false, SeqCst);
            done.store(true, SeqCst);
        });
        scene.model.set_active(2);
        busy.join().unwrap();
        stopped.store(true, SeqCst);
        drop(color);
        scene.end(helper);
    });
}

// The runtime ends while some of its workers, or none, fall asleep, and the monitor is at any
// point: its thread ends too, and has dropped the runtime.
//
// Caught: a stop that does not wake the monitor (deadlock); a monitor that keeps the runtime
// (leak).
#[test]
fn the_monitor_ends_with_its_runtime() {
    check(2_000, || {
        let Scene { model, monitor, .. } = Scene::start();
        let workers = (0..thread_rng().gen_range(0..=2)).map(|index| {
            let model = model.clone();
            thread::spawn(move || model.worker(index, |worker| worker.sleep()))
        });
        let workers: Vec<_> = workers.collect();
        model.stop();
        monitor.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        finish(&model);
    });
}

const BUSY: usize = 0;
const HELPER: usize = 1;
const ROUNDS: usize = 2;

/// The last check before the turn's end, one that began before the helper slept, and the one that
/// wakes it.
const LOOKS_MAX: usize = 3;
