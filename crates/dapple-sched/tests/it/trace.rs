//! Tracing single callbacks, and measuring them.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dapple_sched::{Callback, Color, Colored, Label, Observer, Runtime, TraceEvent, TraceKind, spawn, when, yield_now};

use crate::support::{LONG, collector, occupy};

#[derive(Default)]
struct Log(Mutex<Vec<TraceEvent>>);

impl Observer for Log {
    fn event(&self, event: &TraceEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    fn events(&self) -> Vec<TraceEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until every accepted callback has ended.
    fn settled(&self) -> Vec<TraceEvent> {
        let until = Instant::now() + LONG;
        loop {
            let events = self.events();
            let count = |wanted: fn(TraceKind) -> bool| events.iter().filter(|event| wanted(event.kind)).count();
            let over = count(|kind| matches!(kind, TraceKind::Ended { .. } | TraceKind::Dropped));
            if count(|kind| kind == TraceKind::Accepted) == over {
                return events;
            }
            assert!(Instant::now() < until, "not all has ended: {events:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn traced(workers: usize) -> (Runtime, Arc<Log>) {
    let log = Arc::new(Log::default());
    (Runtime::builder().workers(workers).observer(log.clone()).build().unwrap(), log)
}

const ENDED: TraceKind = TraceKind::Ended { panicked: false };

#[test]
fn events_show_what_ran_where_and_its_poster() {
    let (runtime, log) = traced(1);
    let _entered = runtime.enter();
    let (first, second) = (Color::new(), Color::new());
    let (first_id, second_id) = (first.id(), second.id());
    let (tx, seen) = collector::<()>();
    let second_line = Arc::new(OnceLock::new());
    let inner_line = second_line.clone();
    let first_line = line!() + 1;
    first.post(move || {
        inner_line.set(line!() + 1).unwrap();
        second.post(move || drop(tx));
    });
    seen.all();
    let events = log.settled();
    let (first_line, second_line) = (first_line, *second_line.get().unwrap());
    let (a, b) = (events[0].callback, events[2].callback);
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.kind, event.callback, event.cause, event.color_id, event.worker, event.posted_from.line()))
        .collect();
    assert_eq!(
        seen,
        [
            (TraceKind::Accepted, a, None, first_id, None, first_line),
            (TraceKind::Started, a, None, first_id, Some(0), first_line),
            (TraceKind::Accepted, b, Some(a), second_id, Some(0), second_line),
            (ENDED, a, None, first_id, Some(0), first_line),
            (TraceKind::Started, b, Some(a), second_id, Some(0), second_line),
            (ENDED, b, Some(a), second_id, Some(0), second_line),
        ]
    );
    assert!(events.iter().all(|event| event.posted_from.file() == file!()));
    assert!(events.is_sorted_by_key(|event| event.at));
}

#[test]
fn polls_of_a_task_follow_from_what_woke_it() {
    let (runtime, log) = traced(1);
    let (task, line) = (runtime.spawn(async { yield_now().await }), line!());
    runtime.block_on(task).unwrap();
    let events = log.settled();
    let polls: Vec<_> = events.iter().filter(|event| event.kind == TraceKind::Started).collect();
    assert_eq!(polls.len(), 2);
    assert_eq!((polls[0].cause, polls[1].cause), (None, Some(polls[0].callback)));
    assert!(polls.iter().all(|poll| poll.posted_from.line() == line));
}

/// For each callback, the kinds of its events in the order in which they came.
fn by_callback(events: &[TraceEvent]) -> BTreeMap<u64, Vec<TraceKind>> {
    let mut by_callback = BTreeMap::<u64, Vec<TraceKind>>::new();
    for event in events {
        by_callback.entry(event.callback).or_default().push(event.kind);
    }
    by_callback
}

#[test]
fn each_callback_is_accepted_started_and_ended_once() {
    let (runtime, log) = traced(2);
    {
        let _entered = runtime.enter();
        let color = Color::new();
        let callback: Callback<u32> = color.wrap(|_| ());
        color.set_capacity(Some(10_000));
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (callback, color) = (callback.clone(), color.clone());
                spawn(async move {
                    for _ in 0..n {
                        callback.call(n);
                        color.try_post(|| ()).unwrap();
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
    }
    let events = log.settled();
    assert_whole(&events);
    let started = events.iter().filter(|event| event.kind == TraceKind::Started).count() as u64;
    let handle = runtime.handle().clone();
    assert_eq!(runtime.shutdown(LONG).callbacks_dropped, 0);
    assert_eq!(handle.stats().workers.iter().map(|worker| worker.callbacks).sum::<u64>(), started);
}

#[test]
fn waits_and_requests_are_traced_too() {
    let (runtime, log) = traced(2);
    let _entered = runtime.enter();
    let (a, b) = (Colored::new(0), Colored::new(0));
    let line = line!() + 6;
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (a, b) = (a.clone(), b.clone());
            spawn(async move {
                for _ in 0..n {
                    when((&a, &b)).post(|(a, b)| *a = *b);
                    a.with(|a| *a += 1).await;
                    when((&a, b.reading())).with(|(a, b)| *a += *b).await;
                    when((a.reading(), b.reading())).post(|_| ());
                    b.post_read(|_| ());
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
    let events = log.settled();
    assert_over(&events);
    let posted = |wanted: TraceKind, line| {
        events.iter().filter(|event| event.kind == wanted && event.posted_from.line() == line).count()
    };
    assert_eq!(posted(TraceKind::Accepted, line), (0..50).sum::<usize>());
    assert_eq!(posted(ENDED, line + 4), (0..50).sum::<usize>());
}

#[test]
fn a_wait_to_read_is_traced_too() {
    let (runtime, log) = traced(2);
    let _entered = runtime.enter();
    let state = Colored::new(7);
    let gate = occupy(state.color());
    let tasks = [(); 3].map(|()| {
        let state = state.clone();
        spawn(async move { state.read(|n| *n).await })
    });
    let until = Instant::now() + LONG;
    while state.color().stats().queued < 3 && Instant::now() < until {
        std::thread::yield_now();
    }
    gate.open();
    for task in tasks {
        assert_eq!(runtime.block_on(task).unwrap(), 7);
    }
    // The callback that made the others wait, at least two polls, and a wait for each.
    assert!(by_callback(&log.settled()).len() > 3 * 3);
    assert_over(&log.settled());
}

/// Each callback has run, or was dropped. A closure in line has one event.
fn assert_over(events: &[TraceEvent]) {
    let events: Vec<TraceEvent> =
        events.iter().filter(|event| !matches!(event.kind, TraceKind::InLine { .. })).cloned().collect();
    for (callback, kinds) in by_callback(&events) {
        let over: [&[TraceKind]; 2] =
            [&[TraceKind::Accepted, TraceKind::Dropped], &[TraceKind::Accepted, TraceKind::Started, ENDED]];
        assert!(over.contains(&&kinds[..]), "callback {callback}: {kinds:?}");
    }
}

/// Each callback has run.
fn assert_whole(events: &[TraceEvent]) {
    for (callback, kinds) in by_callback(events) {
        assert_eq!(kinds, [TraceKind::Accepted, TraceKind::Started, ENDED], "callback {callback}");
    }
}

#[test]
fn drops_of_a_shutdown_are_reported_as_well() {
    let (runtime, log) = traced(2);
    let gate = {
        let _entered = runtime.enter();
        let color = Color::new();
        let gate = occupy(&color);
        for _ in 0..10 {
            color.post(|| ());
        }
        drop(color.spawn(async {}));
        gate
    };
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    let report = runtime.shutdown(Duration::ZERO);
    opener.join().unwrap();
    let events = log.events();
    let dropped = events.iter().filter(|event| event.kind == TraceKind::Dropped).count() as u64;
    assert_eq!((dropped, report.callbacks_dropped), (11, 11));
    assert_over(&events);
}

#[test]
fn a_panic_is_told_of_callbacks_and_of_tasks() {
    let log = Arc::new(Log::default());
    let runtime = Runtime::builder().workers(1).panic_handler(|_| ()).observer(log.clone()).build().unwrap();
    runtime.handle().new_color().post(|| panic!("on purpose"));
    let task = runtime.spawn(async { panic!("on purpose") });
    assert!(runtime.block_on(task).is_err());
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let kinds = log.settled().into_iter().map(|event| event.kind);
    let ended: Vec<_> = kinds.filter(|kind| matches!(kind, TraceKind::Ended { .. })).collect();
    assert_eq!(ended, [true, true, false].map(|panicked| TraceKind::Ended { panicked }));
}

#[test]
fn an_observer_may_panic_and_post_without_harm() {
    struct Wild(Mutex<u32>, Mutex<Option<Color>>);
    impl Observer for Wild {
        fn event(&self, event: &TraceEvent) {
            *self.0.lock().unwrap() += 1;
            if event.kind == TraceKind::Started {
                // Not traced itself, or this would never end.
                let color = self.1.lock().unwrap().clone();
                color.unwrap().post(|| ());
            }
            panic!("on purpose");
        }
    }
    let wild = Arc::new(Wild(Mutex::new(0), Mutex::new(None)));
    let runtime = Runtime::builder().workers(1).observer(wild.clone()).build().unwrap();
    let color = runtime.handle().new_color();
    *wild.1.lock().unwrap() = Some(color.clone());
    let state = runtime.block_on(color.spawn(async { 7 }));
    assert_eq!(state.unwrap(), 7);
    // A color holds its runtime, which holds its observer.
    drop((color, wild.1.lock().unwrap().take()));
    assert_eq!(runtime.shutdown(LONG).workers_stuck, 0);
    assert_eq!(wild.0.lock().map_or_else(|poisoned| *poisoned.into_inner(), |count| *count), 3);
}

#[test]
fn times_are_measured_while_that_is_asked_for() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let handle = runtime.handle();
    let color = handle.new_color();
    let round = || {
        let (tx, seen) = collector::<()>();
        let (go, both_posted) = channel();
        color.post(move || {
            both_posted.recv_timeout(LONG).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        });
        color.post(move || drop(tx));
        go.send(()).unwrap();
        seen.all();
        runtime.block_on(color.spawn(async {})).unwrap();
    };
    round();
    assert_eq!((color.stats().measured, color.stats().wait_ns, color.stats().run_ns), (0, 0, 0));
    let started = Instant::now();
    handle.measure_times(true);
    round();
    // The last of them may not have ended when its result arrived.
    let until = Instant::now() + LONG;
    while color.stats().measured < 3 && Instant::now() < until {
        std::thread::yield_now();
    }
    handle.measure_times(false);
    let (elapsed_ns, stats) = (started.elapsed().as_nanos() as u64, color.stats());
    assert_eq!(stats.measured, 3);
    // One ran for five milliseconds, and the next waited for it.
    assert!(stats.run_ns >= 5_000_000 && stats.run_ns <= elapsed_ns, "{stats:?}");
    assert!(stats.wait_ns >= 5_000_000 && stats.wait_ns <= 3 * elapsed_ns, "{stats:?}");
    let worker = handle.stats().workers[0];
    assert_eq!((worker.measured, worker.wait_ns, worker.run_ns), (stats.measured, stats.wait_ns, stats.run_ns));
    round();
    assert_eq!(color.stats().measured, 3);
}

#[test]
fn time_within_another_callback_is_counted_once() {
    let started = Instant::now();
    let runtime = Runtime::builder().workers(1).measure_times(true).build().unwrap();
    let entered = runtime.enter();
    let state = Colored::new(0);
    let gate = occupy(state.color());
    // Polled within the turn of the state's color once that is free.
    let task = spawn({
        let state = state.clone();
        async move { state.with(|_| std::thread::sleep(Duration::from_millis(5))).await }
    });
    std::thread::sleep(Duration::from_millis(1));
    gate.open();
    runtime.block_on(task).unwrap();
    let handle = runtime.handle().clone();
    drop(entered);
    runtime.shutdown(LONG);
    let worker = handle.stats().workers[0];
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    assert!((5_000_000..=elapsed_ns).contains(&worker.run_ns), "{worker:?} in {elapsed_ns} ns");
}

#[test]
fn a_closure_in_line_is_told_with_its_state_and_its_callback() {
    let (runtime, log) = traced(1);
    let _entered = runtime.enter();
    let line = line!() + 1;
    let state = Colored::new(0);
    let id = state.color().id();
    runtime.block_on(spawn(async move { state.with(|count| *count += 1).await })).unwrap();
    let events = log.settled();
    let in_line = events.iter().find(|event| matches!(event.kind, TraceKind::InLine { .. })).expect("it is told");
    assert_eq!((in_line.color_id, in_line.posted_from.line(), in_line.worker), (id, line, Some(0)));
    let TraceKind::InLine { started, reads: false } = in_line.kind else { unreachable!() };
    let polled = |kind: fn(TraceKind) -> bool| {
        events.iter().find(|event| Some(event.callback) == in_line.cause && kind(event.kind)).expect("it is told").at
    };
    assert!(polled(|kind| kind == TraceKind::Started) <= started && started <= in_line.at);
    assert!(in_line.at <= polled(|kind| matches!(kind, TraceKind::Ended { .. })));
}

#[test]
fn an_observer_is_switched_on_and_off_while_the_program_runs() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let log = Arc::new(Log::default());
    runtime.handle().observe(true);
    runtime.handle().set_observer(log.clone()).unwrap();
    assert!(runtime.handle().set_observer(log.clone()).is_err(), "it keeps the first");
    let run = || runtime.block_on(runtime.spawn(async {})).unwrap();
    run();
    assert_eq!(log.events().len(), 0, "an observer begins switched off");
    runtime.handle().observe(true);
    run();
    let seen = log.settled().len();
    assert!(seen >= 3);
    runtime.handle().observe(false);
    run();
    assert_eq!(log.events().len(), seen);
}

/// Keeps begins and ends, and gives each begin a number.
#[derive(Default)]
struct Pairs {
    accepted: std::sync::atomic::AtomicBool,
    begun: std::sync::Mutex<Vec<TraceEvent>>,
    ended: std::sync::Mutex<Vec<(TraceEvent, u64)>>,
}

impl Observer for Pairs {
    fn event(&self, event: &TraceEvent) {
        self.accepted.fetch_or(event.kind == TraceKind::Accepted, std::sync::atomic::Ordering::Relaxed);
    }

    fn skips_accepted(&self) -> bool {
        true
    }

    fn started(&self, event: &TraceEvent) -> u64 {
        let mut begun = self.begun.lock().unwrap();
        begun.push(event.clone());
        begun.len() as u64
    }

    fn ended(&self, event: &TraceEvent, started: u64) {
        self.ended.lock().unwrap().push((event.clone(), started));
    }
}

#[test]
fn an_observer_of_pairs_gets_its_number_back_with_the_end() {
    let pairs = Arc::new(Pairs::default());
    let runtime = Runtime::builder().workers(1).observer(pairs.clone()).build().unwrap();
    let color = runtime.handle().new_color();
    let inner = color.clone();
    // One turn runs all of them.
    color.post(move || (0..50).for_each(|_| inner.post(|| ())));
    runtime.block_on(async { color.spawn(async {}).await }).unwrap();
    runtime.shutdown(LONG);
    let (begun, ended) = (pairs.begun.lock().unwrap(), pairs.ended.lock().unwrap());
    assert!(!pairs.accepted.load(std::sync::atomic::Ordering::Relaxed), "it does without");
    assert!(begun.len() >= 51 && begun.len() == ended.len(), "{} begun, {} ended", begun.len(), ended.len());
    for (end, number) in ended.iter() {
        let begin = &begun[*number as usize - 1];
        assert_eq!(begin.callback, end.callback);
        assert_eq!(begin.accepted_at, end.accepted_at);
        assert!(begin.accepted_at <= begin.at && begin.at <= end.at, "{begin:?} {end:?}");
    }
    let mut ids: Vec<u64> = begun.iter().map(|event| event.callback).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), begun.len(), "each has a number of its own");
    let of_color: Vec<_> = ended.iter().filter(|(end, _)| end.color_id == color.id()).collect();
    let begins_at_end = |pair: &[&(TraceEvent, u64)]| begun[pair[1].1 as usize - 1].at == pair[0].0.at;
    assert!(of_color.windows(2).any(begins_at_end), "a callback begins when the one before it ends");
}

#[test]
fn callbacks_and_closures_in_line_have_the_label_of_their_color() {
    let (runtime, log) = traced(1);
    let _entered = runtime.enter();
    let (state, color) = (Colored::new(0), Color::new());
    color.post(|| ());
    state.color().set_label("accounts");
    color.set_label("a word that is longer than sixty bytes, of which ä is the sixtieth; this is cut off");
    let used = state.clone();
    runtime.block_on(color.spawn(async move { used.with(|n| *n += 1).await })).unwrap();
    // Known before: tasks of other tests may have used up the part of the labels that names of tasks can take.
    Color::new().set_label("cleaner");
    runtime.block_on(dapple_sched::named("cleaner").spawn(async {})).unwrap();
    color.set_label("");
    color.post(|| ());
    let events = log.settled();
    let labels = |wanted: fn(TraceKind) -> bool| -> Vec<_> {
        events.iter().filter(|event| wanted(event.kind)).map(|event| event.label.map(Label::as_str)).collect()
    };
    let cut = "a word that is longer than sixty bytes, of which ä is the s";
    assert_eq!(labels(|kind| kind == TraceKind::Accepted), [None, Some(cut), Some("cleaner"), None], "{events:?}");
    assert_eq!(labels(|kind| matches!(kind, TraceKind::InLine { .. })), [Some("accounts")]);
    assert_eq!(Label::of_number(0), None);
    assert_eq!(Label::of_number(u32::MAX), None);
}
