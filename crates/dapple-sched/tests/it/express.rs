//! Work from outside (threads, I/O events, timers) does not wait for colors that always have more
//! to run.
//!
//! Counted in turns, not in time, because a post waits for turns. By the clock, a post to a fresh
//! color next to a million yielding tasks on two workers waited 160 ms (median) when the color went
//! to the end of the one list; now it waits less than one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{Color, Colored, Driver, Handle, Priority, Runtime, block_on, spawn, yield_now};

use crate::support::{Gate, LONG, collector, occupy, runtime};

/// Tasks that always have more to run, and count their polls. A worker makes them, so that they do
/// not count as from outside.
struct Yielders {
    polls: Arc<Polls>,
    stop: Arc<AtomicBool>,
}

/// Counts per worker: a callback waits only for work on its own worker.
#[derive(Default)]
struct Polls([AtomicU64; 2]);

impl Polls {
    fn note(&self) {
        let worker = Handle::current().worker_index().expect("called by tasks");
        self.0[worker].fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> [u64; 2] {
        [0, 1].map(|worker| self.0[worker].load(Ordering::Relaxed))
    }

    /// The number of turns on this worker since then.
    fn since(&self, before: [u64; 2]) -> u64 {
        let worker = Handle::current().worker_index().expect("called by tasks");
        self.now()[worker] - before[worker]
    }
}

impl Yielders {
    fn start(runtime: &Runtime, count: usize) -> Yielders {
        let yielders = Yielders { polls: Arc::default(), stop: Arc::default() };
        let (polls, stop) = (yielders.polls.clone(), yielders.stop.clone());
        let started = runtime.spawn(async move {
            for _ in 0..count {
                let (polls, stop) = (polls.clone(), stop.clone());
                drop(spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        polls.note();
                        yield_now().await;
                    }
                }));
            }
        });
        runtime.block_on(started).unwrap();
        // Each has had its first turn.
        while yielders.polls.now().iter().sum::<u64>() < 2 * count as u64 {
            std::thread::yield_now();
        }
        yielders
    }
}

impl Drop for Yielders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Keeps each of the workers in a callback until the gates are opened.
fn occupy_all(runtime: &Runtime, workers: usize) -> Vec<Gate> {
    (0..workers).map(|worker| occupy(&runtime.handle().new_color_at(worker))).collect()
}

const COUNT: usize = crate::support::rounds(if cfg!(debug_assertions) { 20_000 } else { 200_000 });

#[test]
fn a_post_from_outside_waits_for_few_turns() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let yielders = Yielders::start(&runtime, COUNT);
    // One that is always queued, and one that is idle.
    let busy = Color::new();
    let stop = yielders.stop.clone();
    let (task_tx, task_started) = collector();
    drop(busy.spawn(async move {
        task_tx.send(()).unwrap();
        while !stop.load(Ordering::Relaxed) {
            yield_now().await;
        }
    }));
    task_started.next();
    let idle = Color::new();
    let waits = |color: &Color| {
        let gate = occupy(&Color::new());
        let (tx, seen) = collector();
        let (polls, before) = (yielders.polls.clone(), yielders.polls.now());
        color.post(move || tx.send(polls.since(before)).unwrap());
        gate.open();
        seen.next()
    };
    for _ in 0..10 {
        let waited = waits(&idle);
        assert!(waited <= 4, "{waited} tasks were polled first");
    }
    // If the machine takes the core away between the task's poll and the callback, the time slice
    // is over.
    let late = (0..20).filter(|_| waits(&busy) > 4).count();
    assert!(late <= 5, "{late} of 20 waited long");
}

#[test]
fn a_post_to_a_running_color_does_not_wait_for_a_round_either() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let yielders = Yielders::start(&runtime, COUNT);
    for _ in 0..10 {
        let color = Color::new();
        let gate = occupy(&color);
        let (tx, seen) = collector();
        let (polls, before) = (yielders.polls.clone(), yielders.polls.now());
        color.post(move || tx.send(polls.since(before)).unwrap());
        gate.open();
        let waited = seen.next();
        assert!(waited <= 4, "{waited} tasks were polled first");
    }
}

#[test]
fn a_wake_from_outside_waits_for_few_turns_on_all_workers() {
    const WORKERS: usize = 2;
    let runtime = runtime(WORKERS);
    let _entered = runtime.enter();
    let yielders = Yielders::start(&runtime, COUNT);
    for _ in 0..10 {
        let gates = occupy_all(&runtime, WORKERS);
        let (tx, seen) = collector();
        let before = yielders.polls.now();
        let tasks: Vec<_> = (0..10)
            .map(|n| {
                let (tx, polls) = (tx.clone(), yielders.polls.clone());
                let home = runtime.handle().new_color_at(n % WORKERS);
                home.spawn(async move { tx.send(polls.since(before)).unwrap() })
            })
            .collect();
        gates.iter().for_each(Gate::open);
        for _ in 0..10 {
            let waited = seen.next();
            // In turn with one task each.
            assert!(waited <= 12, "{waited} tasks were polled first");
        }
        for task in tasks {
            block_on(task).unwrap();
        }
    }
}

#[test]
fn a_flood_from_outside_takes_every_other_turn_only() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (tx, seen) = collector();
    let gate = Gate::default();
    let inside = gate.clone();
    let (started, has_started) = collector();
    let send = |name: &'static str, tx: &Sender<&'static str>| {
        let tx = tx.clone();
        move || tx.send(name).unwrap()
    };
    let of_worker = tx.clone();
    Color::new().post(move || {
        for _ in 0..50 {
            Color::new().post(send("inside", &of_worker));
        }
        drop(of_worker);
        started.send(()).unwrap();
        inside.wait();
    });
    has_started.next();
    for _ in 0..100 {
        Color::new().post(send("outside", &tx));
    }
    // A higher priority goes first, from outside or not.
    Color::new().post_with(Priority::new(1), send("urgent", &tx));
    drop(tx);
    gate.open();
    let seen = seen.all();
    assert_eq!(seen[0], "urgent");
    // In turn, whichever is first.
    assert!(seen[1..101].windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
    assert!(seen[101..].iter().all(|name| *name == "outside"));
}

#[test]
fn a_long_queue_from_outside_is_not_ahead_by_time_slices() {
    // Each callback of the long queue takes a time slice; the other colors are brief.
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let yielders = Yielders::start(&runtime, 1_000);
    let long = Color::new();
    let gate = occupy(&Color::new());
    let (tx, seen) = collector();
    for _ in 0..10 {
        let (polls, tx) = (yielders.polls.clone(), tx.clone());
        long.post(move || {
            tx.send(polls.now()[0]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        });
    }
    drop(tx);
    gate.open();
    let at = seen.all();
    // The first goes to the express list; each later one waits until all have had a turn.
    assert!(at.windows(2).skip(1).all(|pair| pair[1] - pair[0] >= 1_000), "{at:?}");
}

/// A driver with an event at every poll.
#[derive(Default)]
struct Events(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Driver for Events {
    fn park(&self, worker: usize, timeout: Option<Duration>) {
        if !self.poll(worker) {
            std::thread::sleep(timeout.unwrap_or(LONG).min(Duration::from_millis(1)));
        }
    }

    fn poll(&self, _worker: usize) -> bool {
        let event = self.0.lock().unwrap().take();
        event.map(|event| event()).is_some()
    }

    fn unpark(&self, _worker: usize) {}

    fn shutdown(&self) {}
}

#[test]
fn an_event_waits_for_few_turns() {
    let driver = Arc::new(Events::default());
    let given = driver.clone();
    let runtime = Runtime::builder().workers(1).driver(move |_| Ok(given)).build().unwrap();
    let _entered = runtime.enter();
    let yielders = Yielders::start(&runtime, COUNT);
    for _ in 0..20 {
        let (tx, seen) = collector();
        let (polls, color) = (yielders.polls.clone(), Color::new());
        *driver.0.lock().unwrap() = Some(Box::new(move || {
            let before = polls.now();
            color.post(move || tx.send(polls.since(before)).unwrap());
        }));
        let waited = seen.next();
        assert!(waited <= 2, "{waited} tasks were polled first");
    }
}

#[test]
fn an_event_reaches_the_color_that_ran_last() {
    let driver = Arc::new(Events::default());
    let given = driver.clone();
    let runtime = Runtime::builder().workers(1).driver(move |_| Ok(given)).build().unwrap();
    let _entered = runtime.enter();
    let color = Color::new();
    for round in 0..100 {
        let (tx, seen) = collector();
        let (event, driver) = (color.clone(), driver.clone());
        // The event is ready at the end of the turn, and the worker polls for events before its
        // next one.
        color.post(move || {
            let posts = move || event.post(move || tx.send(round).unwrap());
            *driver.0.lock().unwrap() = Some(Box::new(posts));
        });
        assert_eq!(seen.next(), round);
    }
}

/// A driver that counts its polls.
#[derive(Default)]
struct Looks(AtomicUsize);

impl Driver for Looks {
    fn park(&self, _worker: usize, timeout: Option<Duration>) {
        std::thread::sleep(timeout.unwrap_or(LONG).min(Duration::from_millis(1)));
    }

    fn poll(&self, _worker: usize) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn unpark(&self, _worker: usize) {}

    fn shutdown(&self) {}
}

#[test]
fn time_that_a_callback_counts_lets_its_worker_look_for_events() {
    let driver = Arc::new(Looks::default());
    let given = driver.clone();
    let runtime = Runtime::builder().workers(1).driver(move |_| Ok(given)).build().unwrap();
    let _entered = runtime.enter();
    // The other polls take almost no time, so that the worker does not read the clock for each.
    let yielders = Yielders::start(&runtime, 3);
    // As a light task, and in turns of a color.
    for color in [None, Some(Color::new())] {
        let looks = driver.clone();
        let polls = async move {
            let before = looks.0.load(Ordering::SeqCst);
            for _ in 0..1_000 {
                dapple_sched::count_time(Duration::from_millis(5));
                dapple_sched::yield_now().await;
            }
            looks.0.load(Ordering::SeqCst) - before
        };
        let task = match color {
            Some(color) => color.spawn(polls),
            None => runtime.spawn(polls),
        };
        let looked = block_on(task).unwrap();
        assert!(looked >= 1_000, "{looked} times in 1,000 polls that took long");
    }
    drop(yielders);
}

// Tasks that reach the state later would wait with this one, each keeping its own holds.
#[test]
fn a_task_that_waits_for_a_state_waits_for_few_turns() {
    let runtime = runtime(1);
    let yielders = Yielders::start(&runtime, COUNT);
    let (_entered, polls) = (runtime.enter(), yielders.polls.clone());
    let state = Colored::new(());
    let waits = runtime.spawn(async move {
        let mut most = 0;
        // The first color's turn does not wait for the tasks, the others would.
        for _ in 0..10 {
            state.post(|()| ());
            let before = polls.now();
            most = state.with(|()| polls.since(before)).await.max(most);
        }
        most
    });
    let waited = runtime.block_on(waits).unwrap();
    assert!(waited < COUNT as u64 / 10, "{waited} tasks were polled first");
}

#[test]
fn a_state_that_is_let_go_of_goes_to_the_task_that_waits_within_few_turns() {
    let runtime = runtime(1);
    let yielders = Yielders::start(&runtime, COUNT);
    let _entered = runtime.enter();
    let state = Colored::new([0; 2]);
    let waited = || {
        let (tx, seen) = collector();
        let waits = state.with_blocking(|at_release| {
            let (state, polls) = (state.clone(), yielders.polls.clone());
            let waits = runtime.spawn(async move {
                tx.send(()).unwrap();
                state.with(|before| polls.since(*before)).await
            });
            seen.next();
            // Its poll ends after others have been polled.
            let then = yielders.polls.now()[0];
            while yielders.polls.now()[0] == then {
                std::thread::yield_now();
            }
            *at_release = yielders.polls.now();
            waits
        });
        runtime.block_on(waits).unwrap()
    };
    // The first color's turn does not wait for the tasks, the others would.
    waited();
    // The minimum, because the machine may take the core from this thread before it opens the gate.
    let least = (0..10).map(|_| waited()).min().unwrap();
    assert!(least < COUNT as u64 / 10, "{least} tasks were polled first");
}

// A later task would wait with the others, and so would all tasks after it, for ever.
#[test]
fn tasks_that_wait_for_one_state_have_it_within_few_turns_each() {
    const TASKS: usize = 10;
    const COLORS: usize = 1_000;
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (state, ran) = (Colored::new(()), Arc::new(AtomicUsize::new(0)));
    let (tasks, gate) = state.with_blocking(|()| {
        let (tx, asks) = collector();
        let waits = |_| {
            let (state, ran, tx) = (state.clone(), ran.clone(), tx.clone());
            runtime.spawn(async move {
                tx.send(()).unwrap();
                state.with(|()| ran.load(Ordering::Relaxed)).await
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(waits).collect();
        tasks.iter().for_each(|_| asks.next());
        // Not inside a poll, so that all wait.
        let gate = occupy(&Color::new());
        for _ in 0..COLORS {
            let ran = ran.clone();
            Color::new().post(move || _ = ran.fetch_add(1, Ordering::Relaxed));
        }
        // The state's color is in the same list as the others.
        state.post(|()| ());
        (tasks, gate)
    });
    gate.open();
    let waited: Vec<_> = tasks.into_iter().map(|task| block_on(task).unwrap()).collect();
    assert!(*waited.iter().max().unwrap() <= 3 * TASKS, "so many other colors had their turns first: {waited:?}");
}

/// Keeps the color busy until the flag is set.
fn keep_busy(state: Colored<()>, stop: Arc<AtomicBool>) {
    let same = state.clone();
    state.post(move |()| {
        if !stop.load(Ordering::Relaxed) {
            keep_busy(same, stop);
        }
    });
}

/// A task that has waited for one state waits for the next one in the same turn, so that one of
/// them is always queued first.
#[test]
fn work_from_outside_has_its_turns_among_tasks_that_always_wait_for_states() {
    const COLORS: usize = 200;
    // Far more than the colors need, and an end of the test if they starve.
    const WAITS: u64 = 100 * COLORS as u64;
    let runtime = runtime(1);
    let (gate, waits, stop) = (Gate::default(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (ready_tx, ready) = collector();
    let (inside, waited, stops) = (gate.clone(), waits.clone(), stop.clone());
    runtime.handle().new_color().post(move || {
        let states = [Colored::new(()), Colored::new(())];
        states.iter().for_each(|state| keep_busy(state.clone(), stops.clone()));
        drop(spawn(async move {
            while !stops.load(Ordering::Relaxed) {
                for state in &states {
                    state.with(|()| ()).await;
                }
                if waited.fetch_add(2, Ordering::Relaxed) > WAITS {
                    stops.store(true, Ordering::Relaxed);
                }
            }
        }));
        ready_tx.send(()).unwrap();
        inside.wait();
    });
    ready.next();
    let (tx, seen) = collector();
    for _ in 0..COLORS {
        let (tx, waits) = (tx.clone(), waits.clone());
        runtime.handle().new_color().post(move || tx.send(waits.load(Ordering::Relaxed)).unwrap());
    }
    drop(tx);
    gate.open();
    let most = seen.all().into_iter().max().unwrap();
    stop.store(true, Ordering::Relaxed);
    assert!(most < WAITS / 2, "{most} waits for states came first");
}
