//! Counters of colors and workers.

use std::time::{Duration, Instant};

use dapple_sched::{Color, Colored, Runtime, when, yield_now};

use crate::support::{LONG, collector, occupy, runtime};

#[test]
fn a_color_counts_every_callback() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    // Not a multiple of the number at which the history is halved, and more than one such round.
    for callbacks in [1, 511, 512, 1_023, 1_024, 10_007] {
        let color = Color::new();
        let (tx, seen) = collector::<()>();
        for _ in 0..callbacks {
            let tx = tx.clone();
            color.post(move || drop(tx));
        }
        drop(tx);
        seen.all();
        let stats = color.stats();
        assert_eq!((stats.callbacks, stats.queued), (callbacks, 0));
        assert!((1..=callbacks).contains(&stats.queued_max), "{stats:?}");
        assert!(stats.home < 2, "{stats:?}");
    }
}

#[test]
fn colors_and_workers_count_the_same() {
    let runtime = runtime(2);
    let colors: Vec<_> = (0..20).map(|_| runtime.handle().new_color()).collect();
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            colors[n % colors.len()].spawn(async move {
                for _ in 0..n {
                    yield_now().await;
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    let by_color: u64 = colors.iter().map(|color| color.stats().callbacks).sum();
    // A worker counts when a turn is over.
    let until = Instant::now() + LONG;
    while by_worker(&runtime) < by_color && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(by_worker(&runtime), by_color);
    assert_eq!(by_color, 200 + (0..200).sum::<u64>());
    // While a color is unknown its turns are timed.
    assert!(colors.iter().all(|color| color.stats().mean_ns > 0));
}

fn by_worker(runtime: &Runtime) -> u64 {
    runtime.handle().stats().workers.iter().map(|worker| worker.callbacks).sum()
}

#[test]
fn waiting_callbacks_are_counted_while_the_color_is_busy() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let gate = occupy(&color);
    for _ in 0..10 {
        color.post(|| ());
    }
    let stats = color.stats();
    assert_eq!((stats.callbacks, stats.queued, stats.queued_max), (1, 10, 10));
    gate.open();
}

#[test]
fn waiting_callbacks_are_counted_by_worker() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let busy = Color::new();
    let gate = occupy(&busy);
    // In a queue once the worker notices, after the running one, in a held one, and in the default
    // color; more colors than fit into one slab.
    let colors: Vec<_> = (0..200).map(|_| Color::new()).collect();
    colors.iter().for_each(|color| (0..3).for_each(|_| color.post(|| ())));
    busy.post(|| ());
    Color::DEFAULT.post(|| ());
    let state = Colored::new(());
    let (handle, waits) = (runtime.handle(), state.color().clone());
    let held = state.try_with(|_| {
        waits.post(|| ());
        (handle.stats().workers[0].queued, handle.dump().workers[0].callbacks)
    });
    assert_eq!(held.unwrap(), (603, 603));
    let dump = handle.dump();
    assert!(dump.to_string().contains("603 callbacks wait"), "{dump}");
    gate.open();
    let until = Instant::now() + LONG;
    while handle.stats().workers[0].queued > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((handle.stats().workers[0].queued, handle.dump().workers[0].callbacks), (0, 0));
}

#[test]
fn a_color_that_is_taken_over_says_so() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    // One worker is stuck, and the other takes over what waits there.
    let (tx, seen) = collector();
    let handle = runtime.handle().clone();
    let (stuck, waiting) = (handle.new_color(), handle.new_color());
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let behind = waiting.clone();
    stuck.post(move || {
        let here = handle.worker_index().unwrap();
        behind.post(move || tx.send((here, handle.worker_index().unwrap())).unwrap());
        gate.recv_timeout(LONG).unwrap();
    });
    let (stuck_on, ran_on) = seen.next();
    open.send(()).unwrap();
    assert_ne!(stuck_on, ran_on);
    let (color, workers) = (waiting.stats(), runtime.handle().stats().workers);
    assert_eq!(color.home, ran_on);
    // Once, unless it was at home on the other worker from the start.
    assert!(color.stolen <= 1);
    let taken: u64 = workers.iter().map(|worker| worker.colors_stolen).sum();
    let lost: u64 = workers.iter().map(|worker| worker.colors_lost).sum();
    assert_eq!(taken, lost);
    assert_eq!(taken, color.stolen + stuck.stats().stolen);
}

/// Keeps the thread for at least that long.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn closures_in_line_count_for_the_color_of_their_state() {
    let runtime = Runtime::builder().workers(1).measure_times(true).build().unwrap();
    let _entered = runtime.enter();
    let began = Instant::now();
    let (state, other, color) = (Colored::new(0), Colored::new(0), Color::new());
    let task = color.spawn({
        let (state, other) = (state.clone(), other.clone());
        async move {
            for _ in 0..10 {
                state.with(|n| (*n += 1, spin(Duration::from_millis(1)))).await;
            }
            state.read(|_| spin(Duration::from_millis(1))).await;
            when((&state, &other)).with(|_| spin(Duration::from_millis(1))).await;
            // Inside a closure of the same color, as a part of that.
            state.with(|_| assert!(other.try_with(|_| spin(Duration::from_millis(1))).is_ok())).await;
        }
    });
    runtime.block_on(task).unwrap();
    let until = Instant::now() + LONG;
    while color.stats().measured == 0 && Instant::now() < until {
        std::thread::yield_now();
    }
    let (state, other, task) = (state.color().stats(), other.color().stats(), color.stats());
    assert_eq!((state.measured, other.measured, task.measured), (13, 2, 1));
    assert!(state.run_ns >= 12_000_000 && other.run_ns >= 2_000_000, "{state:?} {other:?}");
    // No time counts twice, except that of the closure that held both: one worker has run it all.
    let all = Duration::from_nanos(state.run_ns + task.run_ns);
    assert!(all <= began.elapsed(), "{all:?} of {:?}", began.elapsed());
}

#[test]
fn closures_that_have_waited_count_once() {
    let runtime = Runtime::builder().workers(2).measure_times(true).build().unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    let task = runtime.spawn({
        let state = state.clone();
        async move { state.with(|_| spin(Duration::from_millis(2))).await }
    });
    let until = Instant::now() + LONG;
    while state.color().stats().queued == 0 && Instant::now() < until {
        std::thread::yield_now();
    }
    gate.open();
    runtime.block_on(task).unwrap();
    while state.color().stats().measured < 2 && Instant::now() < until {
        std::thread::yield_now();
    }
    let stats = state.color().stats();
    assert_eq!(stats.measured, 2, "the one that kept the color busy, and the closure");
    assert!(stats.run_ns >= 2_000_000 && stats.wait_ns > 0, "{stats:?}");
}

#[test]
fn a_closure_that_panics_counts() {
    let runtime = Runtime::builder().workers(1).measure_times(true).build().unwrap();
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let run = || {
        state.try_with(|_| {
            spin(Duration::from_millis(1));
            panic!("over");
        })
    };
    let result: Result<Result<(), _>, _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    assert!(result.is_err());
    let stats = state.color().stats();
    assert!(stats.measured == 1 && stats.run_ns >= 1_000_000, "{stats:?}");
}
