//! The contents of a dump: stuck workers, and colors with their holders.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use dapple_sched::{Color, ColorDump, ColorKind, ColorState, Colored, Dump, Runtime, TaskWait, when};

use crate::support::{LONG, collector, occupy, runtime};

fn dump(runtime: &Runtime) -> Dump {
    runtime.handle().dump()
}

fn of(dump: &Dump, color: &Color) -> Option<ColorDump> {
    dump.colors.iter().find(|dumped| dumped.color_id == color.id()).copied()
}

/// Dumps until the color is in the wanted state.
fn until(runtime: &Runtime, color: &Color, wanted: ColorState) -> ColorDump {
    let deadline = Instant::now() + LONG;
    loop {
        let dump = dump(runtime);
        match of(&dump, color) {
            Some(dumped) if dumped.state == wanted => return dumped,
            _ => assert!(Instant::now() < deadline, "{color} is never {wanted:?}:\n{dump}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stuck_worker_is_shown_with_what_waits_behind_it() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let [stuck, queued, posted] = [1_005, 1_006, 1_007].map(Color::named);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (tx, started) = collector();
    let behind = queued.clone();
    let line = line!() + 1;
    stuck.post(move || {
        behind.post(|| ());
        tx.send(()).unwrap();
        gate.recv_timeout(LONG).unwrap();
    });
    started.next();
    (0..3).for_each(|_| posted.post(|| ()));
    stuck.post(|| ());
    let deadline = Instant::now() + LONG;
    let dump = loop {
        let dump = dump(&runtime);
        if dump.workers[0].running.as_ref().is_some_and(|running| running.running_for.is_some()) {
            break dump;
        }
        assert!(Instant::now() < deadline, "the monitor does not notice:\n{dump}");
        std::thread::sleep(Duration::from_millis(1));
    };
    let worker = &dump.workers[0];
    let running = worker.running.as_ref().unwrap();
    let posted_from = running.posted_from.unwrap();
    assert_eq!((running.color_id, posted_from.file(), posted_from.line()), (1_005, file!(), line));
    assert!(!worker.asleep && !worker.stopped);
    assert_eq!((worker.queue_len, worker.queue[0].color_id, worker.queue[0].callbacks), (1, 1_006, 1));
    let states = [&stuck, &queued, &posted].map(|color| {
        let dumped = of(&dump, color).unwrap();
        assert_eq!((dumped.kind, dumped.home), (ColorKind::Named, 0));
        (dumped.state, dumped.callbacks)
    });
    assert_eq!(states, [(ColorState::Running, 1), (ColorState::Queued, 1), (ColorState::Posted, 3)]);
    let text = dump.to_string();
    for part in [
        &format!("worker 0: runs a callback of color 1005, posted from {posted_from}, for at least "),
        "  queued: color 1006, priority 0, 1 callbacks",
        "color named 1005: runs on worker 0; 1 callbacks wait",
        "color named 1006: in the queue of worker 0; 1 callbacks wait",
        "color named 1007: waits for worker 0 to take notice; 3 callbacks wait",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    open.send(()).unwrap();
}

#[test]
fn an_idle_runtime_has_nothing_to_show() {
    let runtime = runtime(2);
    let color = runtime.handle().new_color();
    let deadline = Instant::now() + LONG;
    while dump(&runtime).workers.iter().any(|worker| !worker.asleep) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let dump = dump(&runtime);
    assert_eq!((dump.workers.len(), dump.colors.len(), dump.colors_alive), (2, 0, 2));
    assert!(dump.workers.iter().all(|worker| worker.asleep && worker.running.is_none()), "{dump}");
    drop(color);
    assert_eq!(runtime.handle().dump().colors_alive, 1);
}

#[test]
fn the_holder_of_a_color_in_line_is_shown() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let outside = state.try_with(|_| of(&dump(&runtime), state.color())).unwrap().unwrap();
    assert_eq!(outside.state, ColorState::InLine { worker: None });
    assert_eq!(outside.held_from.map(|from| (from.file(), from.line())), Some((file!(), line!() - 2)));
    let read = state.try_read(|_| of(&dump(&runtime), state.color())).unwrap().unwrap();
    assert_eq!(read.state, ColorState::Read { readers: 1 });
    let handle = runtime.handle().clone();
    let task = runtime.spawn({
        let state = state.clone();
        async move { state.with(|_| of(&handle.dump(), state.color())).await }
    });
    let inside = runtime.block_on(task).unwrap().unwrap();
    assert_eq!(inside.state, ColorState::InLine { worker: Some(0) });
    assert!(of(&dump(&runtime), state.color()).is_none());
}

#[test]
fn a_color_that_was_handed_over_shows_its_waiter() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let line = line!() + 1;
    let mut wait = pin!(state.with(|n| *n += 1));
    let gate = occupy(state.color());
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    gate.open();
    let dumped = until(&runtime, state.color(), ColorState::HandedToForeign);
    assert_eq!(dumped.held_from.map(|from| from.line()), Some(line));
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    // A task with an own color that is busy at its turn.
    let gate = occupy(state.color());
    let own = Color::new();
    let task = own.spawn({
        let state = state.clone();
        async move { state.with(|n| *n).await }
    });
    let deadline = Instant::now() + LONG;
    while state.color().stats().queued == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let other = occupy(&own);
    gate.open();
    until(&runtime, state.color(), ColorState::HandedToTask);
    other.open();
    assert_eq!(runtime.block_on(task).unwrap(), 1);
}

#[test]
fn colors_that_wait_for_others_are_shown() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (free, busy) = (Colored::new(1), Colored::new(2));
    let gate = occupy(busy.color());
    let line = line!() + 1;
    when((&free, &busy)).post(|(free, busy)| *free += *busy);
    let dumped = until(&runtime, free.color(), ColorState::HeldForRequest);
    assert_eq!(dumped.held_from.map(|from| from.line()), Some(line));
    gate.open();
    assert_eq!(free.with_blocking(|free| *free), 3);
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand colors take hours")]
fn many_colors_are_counted_and_some_shown() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let colors: Vec<_> = (0..100_000).map(|_| Color::new()).collect();
    let gate = occupy(&colors[0]);
    colors[1..].iter().step_by(20).for_each(|color| color.post(|| ()));
    colors[77].post(|| ());
    colors[77].post(|| ());
    let dump = dump(&runtime);
    assert_eq!(dump.colors_alive, 100_001);
    assert_eq!(dump.colors.len() + dump.colors_left_out, 5_002);
    assert!(dump.colors_left_out >= 3_000);
    // The held one is always shown, and the one with the most waiting callbacks first.
    assert!(of(&dump, &colors[0]).is_some());
    assert_eq!(dump.colors[0].callbacks, 2);
    assert!(dump.to_string().lines().count() < 2_100);
    gate.open();
}

#[test]
fn dumps_do_not_disturb() {
    let runtime = runtime(2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dumper = scope.spawn(|| {
            let mut dumps = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(dump(&runtime).workers.len(), 2);
                dumps += 1;
            }
            dumps
        });
        let _entered = runtime.enter();
        let shared = Colored::new(0);
        for _ in 0..crate::support::rounds(200) {
            // Colors come and go, are stolen, held and named.
            let tasks: Vec<_> = (0..50)
                .map(|n| {
                    let shared = shared.clone();
                    let color = if n % 2 == 0 { Color::new() } else { Color::named(n) };
                    color.spawn(async move {
                        Colored::new(n).with(|n| *n += 1).await;
                        shared.with(|shared| *shared += 1).await;
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
        done.store(true, Ordering::Relaxed);
        assert!(dumper.join().unwrap() > 0);
        assert_eq!(shared.with_blocking(|n| *n), 50 * crate::support::rounds(200));
    });
}

#[test]
fn every_number_is_the_name_of_a_color_like_any_other() {
    for name in [u64::MAX, u64::MAX - 1, u64::MAX - 2, 1] {
        let (slow_tx, slow) = std::sync::mpsc::channel();
        let report = move |slow: &dapple_sched::SlowCallback| slow_tx.send(slow.color_id).unwrap();
        let runtime = Runtime::builder().workers(1).slow_callback(Duration::from_millis(20), report).build().unwrap();
        let _entered = runtime.enter();
        runtime.handle().measure_times(true);
        let color = Color::named(name);
        assert_eq!((color.id(), color == Color::named(name), color.is_default()), (name, true, false));
        let gate = occupy(&color);
        color.post(|| ());
        let held = dump(&runtime);
        assert_eq!(held.workers[0].running.as_ref().map(|running| running.color_id), Some(name), "{held}");
        assert_eq!(of(&held, &color).map(|dumped| (dumped.kind, dumped.state, dumped.callbacks)), {
            Some((ColorKind::Named, ColorState::Running, 1))
        });
        assert_eq!(slow.recv_timeout(LONG), Ok(name));
        gate.open();
        runtime.block_on(color.spawn(async {})).unwrap();
        assert!(color.stats().measured >= 2);
    }
}
#[test]
fn a_task_without_a_color_is_not_said_to_run_in_one() {
    let runtime = runtime(1);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (tx, started) = collector();
    let line = line!() + 1;
    let task = runtime.spawn(async move {
        tx.send(()).unwrap();
        gate.recv_timeout(LONG).unwrap();
    });
    started.next();
    let dump = dump(&runtime);
    let running = dump.workers[0].running.as_ref().unwrap();
    assert!(running.colorless && dump.colors.is_empty(), "{dump}");
    let text = dump.to_string();
    assert!(text.contains(&format!("worker 0: polls a task, spawned from {}:{line}:", file!())), "{text}");
    assert!(!text.contains("runs a callback"), "{text}");
    open.send(()).unwrap();
    runtime.block_on(task).unwrap();
}

#[test]
fn workers_and_colors_agree_in_a_dump() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            Color::new().spawn(async {
                for _ in 0..2_000 {
                    dapple_sched::yield_now().await;
                }
            })
        })
        .collect();
    while tasks.iter().any(|task| !task.is_finished()) {
        let dump = dump(&runtime);
        for running in dump.workers.iter().filter_map(|worker| worker.running.as_ref()) {
            // A callback that the monitor reports as long may be anywhere: its thread was
            // preempted.
            let listed = dump.colors.iter().any(|color| {
                color.color_id == running.color_id && !matches!(color.state, ColorState::Queued | ColorState::Posted)
            });
            assert!(listed || running.colorless || running.running_for.is_some(), "{dump}");
        }
    }
}

/// Dumps until this many tasks of that line have that wait.
fn until_tasks(runtime: &Runtime, line: u32, count: usize, like: impl Fn(&TaskWait) -> bool) -> Dump {
    let deadline = Instant::now() + LONG;
    loop {
        let dump = dump(runtime);
        let of_line = dump.tasks.iter().filter(|tasks| tasks.spawned_from.line() == line);
        if of_line.filter(|tasks| like(&tasks.wait)).map(|tasks| tasks.count).sum::<usize>() == count {
            return dump;
        }
        assert!(Instant::now() < deadline, "line {line}:\n{dump}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn tasks_are_shown_by_their_line_with_what_they_wait_for() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (busy, free) = (Colored::new(0), Colored::new(0));
    let gate = occupy(busy.color());
    let (asks, asks_line) = (busy.clone(), line!() + 1);
    let one = runtime.spawn(async move { asks.with(|n| *n += 1).await });
    let (asks, asks_for) = ((busy.clone(), free.clone()), line!() + 1);
    let both = runtime.spawn(async move { when((&asks.0, &asks.1)).with(|(n, _)| *n += 1).await });
    let spawned = line!() + 1;
    let joins = runtime.spawn(async move { one.await.unwrap() });
    let (unknown, nothing) = (line!() + 1, std::future::pending::<()>());
    let abandoned = runtime.spawn(nothing);
    let color = busy.color().id();
    let dump = until_tasks(
        &runtime,
        asks_line,
        1,
        |wait| matches!(wait, TaskWait::Color { color_id, asked_at } if *color_id == color && asked_at.line() == asks_line),
    );
    let text = format!(": waits for color {color}, asked for at {}:{asks_line}:", file!());
    assert!(dump.to_string().contains(&text), "{dump}");
    until_tasks(
        &runtime,
        asks_for,
        1,
        |wait| matches!(wait, TaskWait::Colors { asked_at } if asked_at.line() == asks_for),
    );
    until_tasks(
        &runtime,
        spawned,
        1,
        |wait| matches!(wait, TaskWait::Join { spawned_from } if spawned_from.line() == asks_line),
    );
    until_tasks(&runtime, unknown, 1, |wait| *wait == TaskWait::Unknown);
    gate.open();
    runtime.block_on(async {
        joins.await.unwrap();
        both.await.unwrap();
    });
    assert_eq!(busy.with_blocking(|n| *n), 2);
    let dump = runtime.handle().dump();
    assert_eq!(dump.tasks.iter().map(|tasks| tasks.count).sum::<usize>(), 1, "{dump}");
    drop(abandoned);
}

/// A dump holds the lock of the colors' memory and takes home locks; a thread that drops the last
/// handle of a named color takes them in the other order.
#[test]
fn a_dump_on_a_worker_meets_colors_that_come_and_go() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (handle, stop) = (runtime.handle().clone(), stop.clone());
            std::thread::spawn(move || {
                let _entered = handle.enter();
                let names = (1u64..).map(|n| (3 * n + thread) * 16);
                names.take_while(|_| !stop.load(Relaxed)).for_each(|name| drop(Color::named(name)));
            })
        })
        .collect();
    let (tx, dumped) = mpsc::channel();
    let handle = runtime.handle().clone();
    Color::new().post(move || {
        (0..20_000).for_each(|_| drop(handle.dump()));
        tx.send(()).unwrap();
    });
    // A limit that only a bug reaches.
    dumped.recv_timeout(Duration::from_secs(600)).expect("each of them waits for another");
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
