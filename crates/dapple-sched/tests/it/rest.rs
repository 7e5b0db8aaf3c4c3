//! Workers that come and go with the processors that the process may use.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use dapple_sched::{Builder, Color, Colored, Handle, Runtime, when, yield_now};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::quota::Quota;
use crate::support::{LONG, collector, occupy};

/// Two workers that follow a quota; `None` on a machine that has one processor.
fn following(quota: &Quota) -> Option<Runtime> {
    let enough = available_parallelism().is_ok_and(|count| count.get() >= 2);
    let builder = Runtime::builder().workers(2).follow_cpus(true).system_root(&quota.0);
    enough.then(|| builder.build().unwrap())
}

/// Waits until so many workers work.
fn await_active(runtime: &Runtime, active: usize) {
    let since = Instant::now();
    while runtime.handle().stats().workers_active != active {
        assert!(since.elapsed() < LONG, "there are not {active} workers that work");
        runtime.block_on(runtime.spawn(yield_now())).unwrap();
    }
}

/// The worker on which a callback of the color runs.
fn ran_on(color: &Color) -> usize {
    let (tx, ran) = collector();
    color.post(move || tx.send(Handle::current().worker_index().unwrap()).unwrap());
    ran.next()
}

/// Posts to the color until its callbacks run on the first worker.
fn await_moved(color: &Color) {
    let since = Instant::now();
    while ran_on(color) != 0 {
        assert!(since.elapsed() < LONG, "the color stays where it was");
    }
}

#[test]
fn colors_leave_a_worker_that_rests_and_pinned_ones_stay() {
    let quota = Quota::new("colors");
    let Some(runtime) = following(&quota) else { return };
    let _entered = runtime.enter();
    let handle = runtime.handle().clone();
    // One color that waits in the queue of a worker that is busy while the number falls, one that
    // is idle, one that is held, and a pinned one.
    let [queued, idle, held] = [(); 3].map(|()| handle.new_color_at(1));
    let pinned = handle.pinned_color(1);
    let gate = occupy(&pinned);
    let (tx, ran) = channel();
    for number in 0..3 {
        let tx = tx.clone();
        queued.post(move || tx.send(number).unwrap());
    }
    let state = Colored::with_color(0, &held);
    quota.set(1);
    await_active(&runtime, 1);
    gate.open();
    assert_eq!([(); 3].map(|()| ran.recv_timeout(LONG).unwrap()), [0, 1, 2]);
    runtime.block_on(state.with(|count| *count += 1));
    await_moved(&queued);
    await_moved(&idle);
    assert_eq!(ran_on(&pinned), 1);
    let dump = handle.dump().to_string();
    assert!(!dump.is_empty());
    // A set with the pinned color runs there, and the other color leaves again.
    let on_pinned = Colored::with_color(0, &pinned);
    runtime.block_on(async { when((&state, &on_pinned)).with(|(count, _)| *count += 1).await });
    await_moved(&held);
    assert_eq!(runtime.block_on(state.with(|count| *count)), 2);
    // New tasks are only on working workers.
    assert_eq!(ran_on(&Color::new()), 0);
    quota.set(2);
    await_active(&runtime, 2);
    assert_eq!(ran_on(&pinned), 1);
}

#[test]
fn work_goes_on_while_workers_come_and_go() {
    let quota = Quota::new("work");
    let Some(runtime) = following(&quota) else { return };
    let _entered = runtime.enter();
    let states: Vec<_> = (0..16).map(|_| Colored::new(0_u64)).collect();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let done = std::sync::Arc::new(AtomicU64::new(0));
    let states = std::sync::Arc::new(states);
    let tasks: Vec<_> = (0..8)
        .map(|number: usize| {
            let (states, stop, done) = (states.clone(), stop.clone(), done.clone());
            runtime.spawn(async move {
                let mut at = number;
                while !stop.load(Ordering::Relaxed) {
                    at = (at + 5) % states.len();
                    states[at].with(|count| *count += 1).await;
                    done.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            })
        })
        .collect();
    for active in [1, 2, 1] {
        quota.set(active);
        await_active(&runtime, active);
        // And with all workers back, all colors can still move.
        let before = done.load(Ordering::Relaxed);
        let since = Instant::now();
        while done.load(Ordering::Relaxed) < before + 1_000 {
            assert!(since.elapsed() < LONG, "nothing happens with {active} workers");
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    let sum: u64 = states.iter().map(|state| runtime.block_on(state.with(|count| *count))).sum();
    assert_eq!(sum, done.load(Ordering::Relaxed));
    // While a worker rests.
    let report = runtime.shutdown(LONG);
    assert_eq!((report.workers_stuck, report.callbacks_dropped, report.tasks_dropped), (0, 0, 0));
}

#[test]
fn a_number_that_was_set_stays_and_a_quota_is_rounded_up() {
    let quota = Quota::new("fixed");
    quota.set(1);
    let default = || Runtime::builder().system_root(&quota.0);
    assert_eq!(default().build().unwrap().handle().workers(), 1);
    let fixed = |builder: Builder| builder.workers(3).build().unwrap().handle().stats().workers_active;
    assert_eq!(fixed(default()), 3);
    assert_eq!(fixed(default().follow_cpus(true)), 1);
    let half = "50000 100000\n";
    std::fs::write(quota.0.join("sys/fs/cgroup/own/cpu.max"), half).unwrap();
    assert_eq!(fixed(default().follow_cpus(true)), 1);
    std::fs::write(quota.0.join("sys/fs/cgroup/own/cpu.max"), "110000 100000\n").unwrap();
    let two = available_parallelism().is_ok_and(|count| count.get() >= 2);
    assert_eq!(default().build().unwrap().handle().workers(), 1 + usize::from(two));
}

/// Sets the affinity of all threads of this process.
fn set_affinity(set: &CpuSet) {
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let name = thread.unwrap().file_name();
        let id = name.to_str().unwrap().parse().unwrap();
        // A thread that has just ended is no failure.
        let _ = sched_setaffinity(Pid::from_raw(id), set);
    }
}

#[test]
fn workers_follow_the_affinity_of_the_process() {
    // In a separate process, because the affinity is that of all its threads.
    if std::env::var_os(ALONE).is_none() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "rest::workers_follow_the_affinity_of_the_process", "--nocapture"]).env(ALONE, "");
        let output = process.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let all = sched_getaffinity(None).unwrap();
    let Some(first) = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).filter(|_| all.count() >= 2) else { return };
    let mut one = CpuSet::new();
    one.set(first);
    let quota = Quota::new("affinity");
    let runtime = Runtime::builder().system_root(&quota.0).build().unwrap();
    let fixed = Runtime::builder().workers(2).system_root(&quota.0).build().unwrap();
    let workers = runtime.handle().workers();
    assert_eq!(workers, all.count() as usize);
    for round in 0..2 {
        set_affinity(&one);
        await_active(&runtime, 1);
        set_affinity(&all);
        await_active(&runtime, workers);
        assert_eq!(fixed.handle().stats().workers_active, 2, "round {round}");
    }
    // A shutdown while all but one worker rest, and one is awake.
    set_affinity(&one);
    await_active(&runtime, 1);
    let busy = runtime.spawn(async { std::thread::sleep(Duration::from_millis(5)) });
    assert_eq!(runtime.shutdown(LONG).workers_stuck, 0);
    assert!(busy.is_finished());
}

const ALONE: &str = "DAPPLE_TEST_REST";
