//! The blocking pool: its bounds, and its behavior at them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dapple_io::Config;
use dapple_io::blocking::{self, BlockingError, BlockingStats, spawn_blocking, try_spawn_blocking};
use dapple_sched::{Runtime, spawn};

use crate::{run, runtime, wait_until};

fn small_pool(threads_max: usize, queue_max: usize) -> Runtime {
    let mut config = Config::default();
    config.blocking_threads_max = threads_max;
    config.blocking_queue_max = queue_max;
    config.blocking_idle_timeout = Duration::from_millis(20);
    let builder = dapple_io::runtime_builder_with(config).workers(1);
    builder.build().unwrap()
}

/// Holds functions on the pool until opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(guard, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[test]
fn results_and_panics_come_back() {
    run(1, async {
        let on_worker = spawn_blocking(dapple_sched::on_worker).await.unwrap();
        assert!(!on_worker);
        let name = spawn_blocking(|| std::thread::current().name().map(str::to_owned));
        assert!(name.await.unwrap().unwrap().starts_with("dapple-block-"));
        let panicked = spawn_blocking(|| panic!("on purpose: {}", 7)).await;
        match panicked {
            Err(BlockingError::Panicked(message)) => assert_eq!(message, "on purpose: 7"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_function_on_the_pool_belongs_to_the_runtime() {
    run(1, async {
        let task = spawn_blocking(|| spawn(async { 5 })).await.unwrap();
        assert_eq!(task.await.unwrap(), 5);
    });
}

#[test]
fn the_bounds_hold() {
    let runtime = small_pool(2, 3);
    let gate = Arc::new(Gate::default());
    let results = runtime.block_on(async {
        let held: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                spawn_blocking(move || gate.wait())
            })
            .collect();
        wait_until("both threads are busy", || gate.waiting.load(Ordering::SeqCst) == 2);
        let queued: Vec<_> = (0..3).map(|i| try_spawn_blocking(move || i).unwrap()).collect();
        assert!(try_spawn_blocking(|| ()).is_err(), "the queue is full");
        // These wait for room, in tasks on a worker that must not block.
        let waiting: Vec<_> =
            (10..15).map(|i| spawn(async move { spawn_blocking(move || i).await.unwrap() })).collect();
        spawn(async {}).await.unwrap();
        gate.open();
        let mut results = Vec::new();
        for future in queued {
            results.push(future.await.unwrap());
        }
        for future in waiting {
            results.push(future.await.unwrap());
        }
        for future in held {
            future.await.unwrap();
        }
        results
    });
    assert_eq!(results, [0, 1, 2, 10, 11, 12, 13, 14]);
}

#[test]
fn a_dropped_wait_passes_the_room_on() {
    let runtime = small_pool(1, 1);
    let gate = Arc::new(Gate::default());
    runtime.block_on(async {
        let held = gate.clone();
        let first = spawn_blocking(move || held.wait());
        wait_until("the thread is busy", || gate.waiting.load(Ordering::SeqCst) == 1);
        let second = try_spawn_blocking(|| 2).unwrap();
        let given_up = spawn(async { spawn_blocking(|| 3).await });
        let patient = spawn(async { spawn_blocking(|| 4).await });
        spawn(async {}).await.unwrap();
        given_up.abort();
        gate.open();
        first.await.unwrap();
        assert_eq!(second.await.unwrap(), 2);
        assert_eq!(patient.await.unwrap().unwrap(), 4);
    });
}

#[test]
fn idle_threads_end_and_new_ones_come() {
    let runtime = small_pool(4, 16);
    let thread = || runtime.block_on(async { spawn_blocking(thread_id).await.unwrap() });
    let first = thread();
    wait_until("another thread does the work", || {
        std::thread::sleep(Duration::from_millis(50));
        thread() != first
    });
}

fn thread_id() -> std::thread::ThreadId {
    std::thread::current().id()
}

#[test]
fn queued_functions_learn_of_the_shutdown() {
    let runtime = small_pool(1, 10);
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let entered = runtime.enter();
    let _first = spawn_blocking(move || held.wait());
    wait_until("the thread is busy", || gate.waiting.load(Ordering::SeqCst) == 1);
    let dropped = Arc::new(());
    let kept = dropped.clone();
    let second = spawn_blocking(move || drop(kept));
    drop(entered);
    drop(runtime);
    wait_until("the function is dropped", || Arc::strong_count(&dropped) == 1);
    let other = self::runtime(1);
    assert!(matches!(other.block_on(second), Err(BlockingError::ShutDown)));
    gate.open();
}

fn stats(runtime: &Runtime) -> BlockingStats {
    let _entered = runtime.enter();
    blocking::stats().unwrap()
}

/// Calls of 100,000 tasks that wait for room: threads and queue keep their bounds, and other tasks
/// go on.
#[test]
fn c9_a_flood_of_calls_neither_stalls_the_workers_nor_grows_the_queue() {
    const CALLS: usize = 100_000;
    let runtime = small_pool(4, 64);
    let gate = Arc::new(Gate::default());
    let is_over = Arc::new(AtomicUsize::new(0));
    let beside = Arc::new(AtomicUsize::new(0));
    let (over, turns) = (is_over.clone(), beside.clone());
    let neighbor = runtime.spawn(async move {
        while over.load(Ordering::SeqCst) == 0 {
            turns.fetch_add(1, Ordering::SeqCst);
            dapple_io::time::sleep(Duration::from_micros(100)).await;
        }
    });
    let sum = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..CALLS)
        .map(|i| {
            let (sum, gate) = (sum.clone(), gate.clone());
            runtime.spawn(async move {
                let blocking = move || {
                    gate.wait();
                    sum.fetch_add(i, Ordering::SeqCst);
                };
                spawn_blocking(blocking).await.unwrap();
            })
        })
        .collect();
    wait_until("all wait", || {
        let stats = stats(&runtime);
        assert!(stats.threads <= 4 && stats.queued <= 64, "{stats:?}");
        stats.waiting == CALLS - 4 - 64
    });
    let before = beside.load(Ordering::SeqCst);
    wait_until("others go on while all threads are stuck", || beside.load(Ordering::SeqCst) > before + 20);
    gate.open();
    let before = beside.load(Ordering::SeqCst);
    wait_until("all have run", || {
        let stats = stats(&runtime);
        assert!(stats.threads <= 4 && stats.queued <= 64, "{stats:?}");
        stats.ran == CALLS as u64
    });
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(beside.load(Ordering::SeqCst) > before, "others went on meanwhile");
    is_over.store(1, Ordering::SeqCst);
    runtime.block_on(neighbor).unwrap();
    assert_eq!(sum.load(Ordering::SeqCst), CALLS * (CALLS - 1) / 2, "each has run once");
    let stats = stats(&runtime);
    assert_eq!((stats.queued, stats.waiting, stats.refused), (0, 0, 0));
    wait_until("the threads end", || self::stats(&runtime).threads == 0);
}

/// A caller that does not wait is refused and gets the function back, and the pool keeps nothing.
#[test]
fn a_flood_that_does_not_wait_is_refused() {
    let runtime = small_pool(2, 8);
    let gate = Arc::new(Gate::default());
    let kept = Arc::new(());
    runtime.block_on(async {
        let mut taken = Vec::new();
        for _ in 0..2 {
            let held = gate.clone();
            taken.push(try_spawn_blocking(move || held.wait()).unwrap());
            wait_until("a thread has it", || gate.waiting.load(Ordering::SeqCst) == taken.len());
        }
        let (mut accepted, mut refused) = (Vec::new(), 0);
        for _ in 0..100_000 {
            let kept = kept.clone();
            match try_spawn_blocking(move || drop(kept)) {
                Ok(blocking) => accepted.push(blocking),
                Err(full) => {
                    refused += 1;
                    drop(full.0);
                }
            }
        }
        assert_eq!((accepted.len(), refused), (8, 99_992));
        assert_eq!(Arc::strong_count(&kept), 9);
        let stats = blocking::stats().unwrap();
        assert_eq!((stats.queued, stats.refused, stats.threads, stats.idle), (8, 99_992, 2, 0));
        gate.open();
        for blocking in accepted {
            blocking.await.unwrap();
        }
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}

/// Tasks that wait for room and are canceled, in any order, drop their functions.
#[test]
fn thousands_of_waits_for_room_can_be_dropped() {
    let runtime = small_pool(1, 1);
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let first = runtime.spawn(async move { spawn_blocking(move || held.wait()).await.unwrap() });
    wait_until("the thread is busy", || gate.waiting.load(Ordering::SeqCst) == 1);
    let kept = Arc::new(());
    let mut tasks: Vec<_> = (0..20_000)
        .map(|_| {
            let kept = kept.clone();
            runtime.spawn(async move { spawn_blocking(move || drop(kept)).await })
        })
        .collect();
    wait_until("all wait", || stats(&runtime).waiting == 20_000 - 1);
    while tasks.len() > 10 {
        let middle = tasks.len() / 2;
        tasks.swap_remove(middle).abort();
    }
    gate.open();
    runtime.block_on(async {
        first.await.unwrap();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    wait_until("the functions are gone", || Arc::strong_count(&kept) == 1);
    assert_eq!(stats(&runtime).waiting, 0);
}

/// After a burst, one call at a time keeps one thread, although each call comes before the idle
/// threads would have ended.
#[test]
fn the_pool_shrinks_under_a_little_load() {
    let runtime = small_pool(8, 64);
    let gate = Arc::new(Gate::default());
    let burst: Vec<_> = (0..8)
        .map(|_| {
            let gate = gate.clone();
            runtime.spawn(async move { spawn_blocking(move || gate.wait()).await.unwrap() })
        })
        .collect();
    wait_until("all threads are there", || gate.waiting.load(Ordering::SeqCst) == 8);
    assert_eq!(stats(&runtime).threads, 8);
    gate.open();
    runtime.block_on(async {
        for task in burst {
            task.await.unwrap();
        }
    });
    wait_until("the threads that are not needed end", || {
        runtime.block_on(async { spawn_blocking(|| ()).await.unwrap() });
        stats(&runtime).threads == 1
    });
}
