//! Random programs of nested closures, in separate runtimes next to that of the trial: holds in
//! holds, futures that are polled, moved, dropped and forgotten there, wakers and destructors that
//! panic, and stops in the middle. `nested` describes them and their checks; the tests of
//! `dapple-sched` run the same ones.

use super::life::Life;
use super::nested::{Env, Op, Program, World, explode};
use crate::rng::Rng;
use dapple_sched::Runtime;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Runs programs until the trial is over.
pub(crate) fn run(life: &Life, workers: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    while life.is_open() {
        if let Err(error) = one_runtime(life, workers, &mut rng) {
            life.book.problem(|| format!("nested programs: {error}"));
        }
        thread::sleep(Duration::from_millis(rng.range(1, 10)));
    }
}

/// Runs several programs, one after the other; then every reference to the runtime must disappear.
fn one_runtime(life: &Life, workers: usize, rng: &mut Rng) -> io::Result<()> {
    let runtime = Runtime::builder()
        .workers(workers)
        .thread_name(THREADS)
        .panic_handler(|_| ())
        .slow_callback(Duration::from_secs(3_600), |_| ())
        .build()?;
    let handle = runtime.handle().clone();
    let runtime = Arc::new(Mutex::new(Some(runtime)));
    let menu = MENUS[rng.index(MENUS.len())];
    let worlds: Vec<Arc<World>> = (0..rng.range(1, 8))
        .map(|_| {
            let program = Program::random(rng.range(1, 3) as usize, menu, &mut |sides| rng.index(sides));
            let world = World::new(handle.clone(), env(&runtime));
            let agents = program.agents.iter().map(|steps| {
                let (world, steps) = (world.clone(), steps.clone());
                spawn(move || world.run(&steps))
            });
            let agents: Vec<_> = agents.collect();
            let died = agents.into_iter().filter_map(|agent| agent.join().err()).count();
            let wrong = world.end(&program);
            if died > 0 || !wrong.is_empty() {
                life.book.problem(|| format!("nested programs: {wrong:#?}, {died} agents died in {program:?}"));
            }
            life.book.nested.fetch_add(1, Relaxed);
            world
        })
        .collect();
    let runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
    match runtime {
        Some(runtime) if rng.once_in(2) => _ = runtime.shutdown(Duration::from_millis(rng.range(0, 10))),
        other => drop(other),
    }
    for world in worlds {
        world.recall();
        let begin = Instant::now();
        while Arc::strong_count(&world) > 1 {
            if begin.elapsed() > PATIENCE {
                life.book.problem(|| "C7: a closure of a nested program was never dropped".to_owned());
                break;
            }
            thread::yield_now();
        }
    }
    Ok(())
}

fn env(runtime: &Arc<Mutex<Option<Runtime>>>) -> Env {
    let runtime = runtime.clone();
    let stop = move || {
        let runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown(Duration::ZERO);
        }
    };
    Env {
        pause: thread::yield_now,
        patience: Duration::from_secs(20),
        beside: |work| spawn(work).join().expect("an agent catches its panics"),
        bomb: |kind| Waker::from(Arc::new(Bomb(kind))),
        unwinds: true,
        stop: Box::new(stop),
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(THREADS.to_owned()).spawn(work).expect("a thread can be started")
}

/// Panics when it is woken, or when it is dropped. A waker that panics when it is cloned needs
/// unsafe code; the tests of `dapple-sched` have one.
struct Bomb(usize);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        if self.0 == 0 {
            explode();
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == 2 && !thread::panicking() {
            explode();
        }
    }
}

/// The name of every thread that runs nested programs, or its prefix: their panics are deliberate.
pub(super) const THREADS: &str = "nested";

/// The operations of programs. Those that forget are separate, because a forgotten value keeps
/// others waiting.
const MENUS: [&[Op]; 4] = {
    use Op::*;
    [
        &[Try, Try, Try, Post, Beside, Reads],
        &[Try, Try, Start, Start, Poll, Poll, Poll, Drop, Post, Task, Task, Beside, Reads, Panic, Bombs],
        &[Try, Start, Poll, Forget, Post, Task, Beside, Reads, Panic, Bombs],
        &[Try, Try, Start, Poll, Drop, Post, Beside, Stop, Panic, Bombs],
    ]
};

/// How long the last references to a world may live on.
const PATIENCE: Duration = Duration::from_secs(20);
