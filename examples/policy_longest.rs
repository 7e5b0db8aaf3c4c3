//! The longest color first: the work of one color cannot be shared, so it should start early
//! (thesis, section 7.1).
//!
//! ```text
//! cargo run --example policy_longest
//! ```
//!
//! Twelve colors with one callback each, then two with six and one with twelve, on two workers.
//! Oldest first, the long ones begin last, and one worker ends alone. Longest first, both end at 18.
//!
//! A [`Policy`] picks among its own worker's colors, and misses a longer one at another worker.
//! [`AllWorkers`] keeps one table of waiting callbacks, from which each worker takes the longest
//! color of all and runs it inline. It needs only pinned colors and states.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dapple::{Builder, Color, Colored, Handle, Policy, Runnable, RunnableKey};

fn main() -> io::Result<()> {
    for (name, by_length) in [("oldest first", false), ("longest of each worker first", true)] {
        let all = Arc::new(Published::default());
        let lengths = all.clone();
        let policy = move |worker| {
            let all = lengths.clone();
            Box::new(PerWorker { worker, by_length, all }) as Box<dyn Policy>
        };
        report(name, run(dapple::builder().policy(policy), post_all)?, all.passed.load(Relaxed));
    }
    let passed = Arc::new(AtomicUsize::new(0));
    let counter = passed.clone();
    let units = run(dapple::builder(), move |alive| AllWorkers::start(alive, counter))?;
    report("longest of all workers first", units, passed.load(Relaxed));
    assert_eq!(passed.load(Relaxed), 0, "no worker ran a color while a longer one waited anywhere");
    Ok(())
}

fn report(name: &str, units: f64, passed: usize) {
    println!("{name}: {units:.1} units of time; {passed} times a worker passed over a longer color");
}

/// The facts of all policies, and how often one took a color while a longer one waited.
#[derive(Default)]
struct Published {
    lengths: Mutex<HashMap<(usize, RunnableKey), usize>>,
    passed: AtomicUsize,
}

/// Picks the longest or the oldest color of one worker. It visits all, fine for a few hundred.
struct PerWorker {
    worker: usize,
    by_length: bool,
    all: Arc<Published>,
}

impl Policy for PerWorker {
    fn queued(&mut self, color: &Runnable) {
        self.all.lengths.lock().expect("no policy panics").insert((self.worker, color.key), color.queued);
    }

    fn changed(&mut self, color: &Runnable) {
        self.queued(color);
    }

    fn removed(&mut self, key: RunnableKey) {
        self.all.lengths.lock().expect("no policy panics").remove(&(self.worker, key));
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        let mut lengths = self.all.lengths.lock().expect("no policy panics");
        let own = lengths.iter().filter(|((worker, _), _)| *worker == self.worker);
        // The smallest key is the oldest color.
        let rank = |length: usize, key| (if self.by_length { length } else { 0 }, Reverse(key));
        let (&(_, key), &length) = own.max_by_key(|&(&(_, key), &length)| rank(length, key))?;
        self.all.passed.fetch_add(usize::from(lengths.values().any(|&other| other > length)), Relaxed);
        lengths.remove(&(self.worker, key));
        Some(key)
    }
}

/// Stands for work, so that the example needs no two cores. Real programs never block a worker.
fn work(alive: Sender<()>) {
    thread::sleep(UNIT);
    drop(alive);
}

/// Leaves the place of each callback to the runtime, and the order to its policy.
fn post_all(alive: &Sender<()>) {
    for length in LENGTHS {
        let color = Color::new();
        for alive in vec![alive.clone(); length] {
            color.post(move || work(alive));
        }
    }
}

/// The waiting callbacks: length, number and callbacks of each color that no worker runs now.
struct AllWorkers {
    waiting: Mutex<BinaryHeap<(usize, Reverse<usize>)>>,
    colors: Vec<Colored<Vec<Sender<()>>>>,
    passed: Arc<AtomicUsize>,
}

impl AllWorkers {
    fn start(alive: &Sender<()>, passed: Arc<AtomicUsize>) {
        let waiting = LENGTHS.iter().enumerate().map(|(number, &length)| (length, Reverse(number)));
        let waiting = Mutex::new(waiting.collect());
        let colors = LENGTHS.iter().map(|&length| Colored::new(vec![alive.clone(); length])).collect();
        let all = Arc::new(AllWorkers { waiting, colors, passed });
        for worker in 0..Handle::current().workers() {
            all.clone().post_next(Color::pinned(worker));
        }
    }

    /// Lets the color's worker run one callback of the longest color after the other.
    fn post_next(self: Arc<Self>, worker: Color) {
        worker.clone().post(move || {
            let mut waiting = self.waiting.lock().expect("no callback panics in it");
            let Some((length, Reverse(number))) = waiting.pop() else { return };
            self.passed.fetch_add(usize::from(waiting.iter().any(|&(other, _)| other > length)), Relaxed);
            drop(waiting);
            self.colors[number].try_with(|callbacks| callbacks.pop().map(work)).expect("no other worker has the color");
            if length > 1 {
                self.waiting.lock().expect("no callback panics in it").push((length - 1, Reverse(number)));
            }
            self.post_next(worker);
        });
    }
}

/// The time of all callbacks on two workers, in units.
fn run(builder: Builder, start: impl FnOnce(&Sender<()>) + Send + 'static) -> io::Result<f64> {
    let runtime = builder.workers(2).build()?;
    let _entered = runtime.enter();
    let (alive, all_done) = channel();
    let started = Instant::now();
    Color::new().post(move || start(&alive));
    // An error: the last callback has dropped its end.
    let _ = all_done.recv();
    Ok(started.elapsed().as_secs_f64() / UNIT.as_secs_f64())
}

const LENGTHS: [usize; 15] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 12];
const UNIT: Duration = Duration::from_millis(5);
