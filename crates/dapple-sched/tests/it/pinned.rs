//! Pinned colors, and values that are not `Send`: they never leave their worker's thread, whatever
//! happens around it.
//!
//! Seen to catch: thieves, adoption, home moves and rescues that each ignore the pin; a value that
//! is not returned after a panic; a worker that leaves its values to the end of the process.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use dapple_sched::{Color, Colored, Handle, Pinned, Runtime, TryWithError, block_on, spawn, when, yield_now};

use crate::support::{LONG, collector, occupy, runtime};

fn here() -> Option<usize> {
    Handle::current().worker_index()
}

/// Not `Send`; notes where and under which color it was dropped.
struct Bound {
    thread: ThreadId,
    name: &'static str,
    color: Color,
    dropped: Sender<(&'static str, bool)>,
    not_send: Rc<()>,
}

impl Bound {
    fn new(name: &'static str, color: &Color, dropped: &Sender<(&'static str, bool)>) -> Bound {
        let thread = std::thread::current().id();
        Bound { thread, name, color: color.clone(), dropped: dropped.clone(), not_send: Rc::new(()) }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        assert_eq!(std::thread::current().id(), self.thread, "dropped on another thread");
        assert_eq!(Rc::strong_count(&self.not_send), 1);
        let _ = self.dropped.send((self.name, Color::current() == self.color));
    }
}

#[test]
fn a_pinned_color_stays_where_it_is_under_all_pressure() {
    const WORKERS: usize = 4;
    let runtime = runtime(WORKERS);
    let _entered = runtime.enter();
    let (tx, done) = collector::<()>();
    let wrong = Arc::new(AtomicUsize::new(0));
    let pinned: Vec<Color> = (0..3 * WORKERS).map(|n| Color::pinned(n % WORKERS)).collect();
    let loose: Vec<Color> = (0..8).map(|_| Color::new()).collect();
    // Every color posts to others, as tiny callbacks that would move home and as long ones that
    // would be stolen.
    for n in 0..crate::support::rounds(40_000) {
        let (to, next) = (pinned[n % pinned.len()].clone(), loose[n % loose.len()].clone());
        let (again, wrong, tx) = (pinned[(n * 7 + 1) % pinned.len()].clone(), wrong.clone(), tx.clone());
        let check = move |color: &Color| {
            if here() != color.pinned_to() {
                wrong.fetch_add(1, Ordering::Relaxed);
            }
        };
        next.post(move || {
            let (check2, to2) = (check.clone(), to.clone());
            to.post(move || {
                check2(&to2);
                if n % 500 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let last = again.clone();
                again.post(move || {
                    check(&last);
                    drop(tx);
                });
            });
        });
    }
    drop(tx);
    done.all();
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn c6_what_is_pinned_waits_for_its_worker_and_nothing_else_does() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (stays, lively) = (Color::pinned(0), runtime.handle().new_color_at(0));
    let ran = Arc::new(AtomicBool::new(false));
    // One callback is queued before the long callback begins (`stays`), the other is sent while it
    // runs (`also`).
    let start = occupy(&runtime.handle().new_color_at(0));
    let gate = crate::support::Gate::default();
    let (inside, (tx, begun)) = (gate.clone(), collector());
    runtime.handle().pinned_color(0).post(move || {
        tx.send(()).unwrap();
        inside.wait();
    });
    let note = ran.clone();
    stays.post(move || note.store(true, Ordering::Relaxed));
    start.open();
    begun.next();
    let also = Color::pinned(0);
    let note = ran.clone();
    also.post(move || note.store(true, Ordering::Relaxed));
    // The other worker comes often to take as much as it may.
    for _ in 0..30 {
        let (tx, seen) = collector();
        lively.post(move || tx.send(here()).unwrap());
        assert_eq!(seen.next(), Some(1));
    }
    assert!(!ran.load(Ordering::Relaxed));
    gate.open();
    for color in [stays, also] {
        assert_eq!(block_on(color.spawn(async { here() })).unwrap(), Some(0));
    }
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn workers_post_to_what_is_pinned_to_others_that_sleep() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    for round in 0..200 {
        let to = Color::pinned(round % 3);
        let task = runtime.handle().new_color_at((round + 1) % 3).spawn(async move {
            let there = to.spawn(async { here() }).await.unwrap();
            assert_eq!(there, to.pinned_to());
        });
        block_on(task).unwrap();
    }
}

#[test]
fn the_home_of_a_pinned_color_does_not_move_to_its_poster() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (poster, to) = (Color::pinned(0), Color::pinned(1));
    for _ in 0..crate::support::rounds(300) {
        let to = to.clone();
        let task = poster.spawn(async move {
            // So brief that running them on the poster's worker costs less.
            (0..100).for_each(|_| to.post(|| ()));
            to.spawn(async { here() }).await.unwrap()
        });
        assert_eq!(block_on(task).unwrap(), Some(1));
    }
    let stats = runtime.handle().stats();
    assert!(stats.workers.iter().all(|worker| worker.panics == 0), "{stats:?}");
}

#[test]
#[should_panic(expected = "worker 2: this runtime has the workers 0 to 1")]
fn there_must_be_such_a_worker() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    Color::pinned(2);
}

#[test]
#[should_panic(expected = "make it with Color::pinned")]
fn a_color_that_moves_keeps_nothing_that_must_not() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    Pinned::new(&Color::new(), || Rc::new(1));
}

#[test]
fn state_that_is_not_send_is_used_from_everywhere() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let state = Pinned::new(&Color::pinned(1), || Rc::new(RefCell::new(Vec::new())));
    for n in 0..10 {
        state.post(move |list| list.borrow_mut().push(n));
    }
    // A thread, tasks anywhere, and tasks on its worker.
    assert_eq!(block_on(state.with(|list| (here(), list.borrow().len()))), (Some(1), 10));
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let state = state.clone();
            let color = if n % 3 == 0 { Color::pinned(n / 3 % 3) } else { Color::new() };
            color.spawn(async move {
                let (worker, len) = state.with(move |list| (here(), list.borrow_mut().push(n))).await;
                assert_eq!((worker, len), (Some(1), ()));
            })
        })
        .collect();
    for task in tasks {
        block_on(task).unwrap();
    }
    let mut list = block_on(state.with(|list| list.borrow().clone()));
    assert_eq!(list[..10], (0..10).collect::<Vec<_>>());
    list.drain(..10);
    list.sort_unstable();
    assert_eq!(list, (0..300).collect::<Vec<_>>());
}

#[test]
fn try_with_is_for_its_worker_only() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::pinned(1);
    let state = Pinned::new(&color, || Rc::new(Cell::new(1)));
    let ask = |state: &Pinned<Rc<Cell<i32>>>| state.try_with(|n| n.replace(n.get() + 1));
    assert_eq!(ask(&state), Err(TryWithError::Elsewhere));
    let of_state = state.clone();
    assert_eq!(block_on(Color::pinned(0).spawn(async move { ask(&of_state) })).unwrap(), Err(TryWithError::Elsewhere));
    // Held by the callback itself, and nested in itself.
    let of_state = state.clone();
    let inside = color.spawn(async move {
        let nested = of_state.try_with(|_| of_state.try_with(|n| n.get()));
        (ask(&of_state), nested)
    });
    assert_eq!(block_on(inside).unwrap(), (Ok(1), Ok(Err(TryWithError::Busy))));
    // Free, and requested by a neighbor; not free.
    let of_state = state.clone();
    let neighbor = Color::pinned(1);
    assert_eq!(block_on(neighbor.spawn(async move { ask(&of_state) })).unwrap(), Ok(2));
    let of_state = state.clone();
    let busy = neighbor.spawn(async move {
        color.post(|| ());
        (ask(&of_state), of_state.with(|n| n.get()).await)
    });
    assert_eq!(block_on(busy).unwrap(), (Err(TryWithError::Busy), 3));
    // Worker 1 of another runtime is another worker.
    let other = self::runtime(2);
    let of_state = state.clone();
    let task = other.handle().pinned_color(1).spawn(async move { ask(&of_state) });
    assert_eq!(block_on(task).unwrap(), Err(TryWithError::Elsewhere));
    let of_state = state.clone();
    let task = other.handle().pinned_color(1).spawn(async move { of_state.with(|n| n.get()).await });
    assert_eq!(block_on(task).unwrap(), 3);
}

#[test]
fn in_its_own_color_a_value_is_there_at_once() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::pinned(1);
    let own = color.clone();
    let task = color.spawn(async move {
        let state = Pinned::new(&own, || Rc::new(7));
        let now = state.try_with(|n| **n);
        (now, state.with(|n| **n).await)
    });
    assert_eq!(block_on(task).unwrap(), (Ok(7), 7));
    // It is missing until it has been made.
    let gate = occupy(&color);
    let state = Arc::new(Mutex::new(None));
    let asked = state.clone();
    let task = color.spawn(async move {
        let state: Option<Pinned<Rc<i32>>> = asked.lock().unwrap().clone();
        state.unwrap().try_with(|n| **n)
    });
    *state.lock().unwrap() = Some(Pinned::new(&color, || Rc::new(7)));
    gate.open();
    assert_eq!(block_on(task).unwrap(), Err(TryWithError::Absent));
}

#[test]
fn futures_keep_what_is_not_send_across_awaits() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            Color::pinned(n % 3).spawn_pinned(move || async move {
                let (seen, color) = (Rc::new(RefCell::new(Vec::new())), Color::current());
                for turn in 0..50 {
                    seen.borrow_mut().push(here());
                    match turn % 3 {
                        0 => yield_now().await,
                        // Woken by other workers.
                        1 => drop(spawn(yield_now()).await),
                        _ => drop(Color::pinned((n + 1) % 3).spawn(yield_now()).await),
                    }
                    assert_eq!(Color::current(), color);
                }
                let seen = Rc::try_unwrap(seen).unwrap().into_inner();
                (seen.len(), seen.iter().all(|worker| *worker == Some(n % 3)))
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(block_on(task).unwrap(), (50, true));
    }
}

#[test]
fn aborting_drops_a_future_on_its_worker_and_in_its_color() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tx, dropped) = collector();
    let color = Color::pinned(1);
    let (running, started) = collector();
    let (own, bound) = (color.clone(), tx.clone());
    let task = color.spawn_pinned(move || async move {
        let _bound = Bound::new("future", &own, &bound);
        running.send(()).unwrap();
        pending::<()>().await;
    });
    started.next();
    task.abort();
    assert!(block_on(task).unwrap_err().is_aborted());
    assert_eq!(dropped.next(), ("future", true));
    // A value that has not been made yet: its maker is dropped, and never called.
    let gate = occupy(&color);
    let task = color.spawn_pinned(|| async { panic!("it does not run") });
    task.abort();
    gate.open();
    let result: Result<(), _> = block_on(task);
    assert!(result.unwrap_err().is_aborted());
    // One that ends by a panic.
    let (own, bound) = (color.clone(), tx);
    let task = color.spawn_pinned(move || async move {
        let _bound = Bound::new("panics", &own, &bound);
        yield_now().await;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let result: Result<(), _> = block_on(task);
    assert!(result.unwrap_err().is_panic());
    assert_eq!(dropped.all(), [("panics", true)]);
}

#[test]
fn c8_a_panic_poisons_pinned_state() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let _entered = runtime.enter();
    let state = Pinned::new(&Color::pinned(1), || Rc::new(Cell::new(1)));
    let of_state = state.clone();
    let task = spawn(async move { of_state.with(|_| -> u32 { panic!("in the middle") }).await });
    let error = block_on(task).unwrap_err();
    assert_eq!(error.to_string(), "the task panicked: in the middle");
    assert!(state.is_poisoned());
    let of_state = state.clone();
    let asked = block_on(state.color().spawn(async move { of_state.try_with(|n| n.get()) })).unwrap();
    assert_eq!(asked, Err(TryWithError::Poisoned));
    let of_state = state.clone();
    let error = block_on(spawn(async move { of_state.with(|n| n.get()).await })).unwrap_err();
    assert!(error.to_string().contains("is poisoned"), "{error}");
    state.clear_poison();
    assert_eq!(block_on(state.with(|n| n.get())), 1);
    // A maker that panics leaves no value.
    let state: Pinned<Rc<i32>> = Pinned::new(&Color::pinned(1), || panic!("not made"));
    let of_state = state.clone();
    let error = block_on(spawn(async move { of_state.with(|n| **n).await })).unwrap_err();
    assert!(error.to_string().contains("is poisoned"), "{error}");
    state.clear_poison();
    let error = block_on(spawn(async move { state.with(|n| **n).await })).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn the_last_handle_drops_a_value_on_its_worker() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tx, dropped) = collector();
    let color = Color::pinned(1);
    let make = |name| {
        let (own, tx) = (color.clone(), tx.clone());
        Pinned::new(&color, move || Bound::new(name, &own, &tx))
    };
    // On a plain thread, before and after it was made; on another worker; in its own color.
    drop(make("at once"));
    assert_eq!(dropped.next(), ("at once", true));
    let state = make("thread");
    block_on(state.with(|_| ()));
    drop(state);
    assert_eq!(dropped.next(), ("thread", true));
    let state = make("worker");
    block_on(Color::pinned(0).spawn(async move { drop(state) })).unwrap();
    assert_eq!(dropped.next(), ("worker", true));
    let state = make("color");
    let ask = dropped;
    block_on(color.spawn(async move { drop(state) })).unwrap();
    assert_eq!(ask.next(), ("color", true));
    // Inside of a neighbor's closure, on the same worker.
    let (outer, inner) = (make("outer"), make("inner"));
    block_on(outer.with(move |_| drop(inner)));
    assert_eq!(ask.next(), ("inner", true));
    drop((outer, tx));
    assert_eq!(ask.all(), [("outer", true)]);
}

#[test]
fn a_with_that_is_dropped_does_not_run() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Pinned::new(&Color::pinned(1), || Rc::new(Cell::new(0)));
    // Never polled, and polled while the color is busy.
    drop(state.with(|n| n.set(1)));
    let gate = occupy(state.color());
    let mut with = Box::pin(state.with(|n| n.set(2)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(with.as_mut().poll(&mut cx).is_pending());
    drop(with);
    gate.open();
    assert_eq!(block_on(state.with(|n| n.get())), 0);
}

#[test]
fn shutdown_drops_everything_where_it_lives() {
    for deadline in [Duration::ZERO, Duration::from_millis(20)] {
        let runtime = runtime(3);
        let entered = runtime.enter();
        let (tx, dropped) = collector();
        let (running, started) = collector::<()>();
        let mut states = Vec::new();
        for worker in 0..3 {
            let color = Color::pinned(worker);
            for name in ["first", "second"] {
                let (own, tx) = (color.clone(), tx.clone());
                states.push(Pinned::new(&color, move || Bound::new(name, &own, &tx)));
            }
            let (own, tx, state, running) = (color.clone(), tx.clone(), states[2 * worker].clone(), running.clone());
            drop(color.spawn_pinned(move || async move {
                let _bound = Bound::new("task", &own, &tx);
                // Values exist as long as tasks do.
                let _uses = Uses(state);
                drop(running);
                pending::<()>().await;
            }));
        }
        drop((tx, running));
        // All tasks are waiting.
        started.all();
        drop(entered);
        let report = runtime.shutdown(deadline);
        assert_eq!((report.tasks_dropped, report.workers_stuck), (3, 0));
        let mut dropped = dropped.all();
        assert!(dropped.iter().all(|(_, held)| *held));
        let at = |name| dropped.iter().position(|(of, _)| *of == name).unwrap();
        assert!(at("task") < at("second"));
        dropped.sort_unstable();
        assert_eq!(
            dropped.iter().map(|(name, _)| *name).collect::<String>(),
            "firstfirstfirstsecondsecondsecondtasktasktask"
        );
        // Handles outlive the runtime, and say so.
        let state = states.pop().unwrap();
        state.post(|_| panic!("it is not called"));
        assert_eq!(state.try_with(|_| ()), Err(TryWithError::Elsewhere));
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(state.with(|_| ()))));
        let message = *asked.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(message, "the state pinned to worker 2 is gone: its runtime has shut down");
        let task = state.color().spawn_pinned(|| async { Rc::strong_count(&Rc::new(())) });
        assert!(block_on(task).unwrap_err().is_aborted());
    }
}

/// Uses its state when it is dropped, which is in its color.
struct Uses(Pinned<Bound>);

impl Drop for Uses {
    fn drop(&mut self) {
        self.0.try_with(|bound| assert_eq!(bound.name, "first")).expect("it is still there");
    }
}

#[test]
fn shutdown_races_with_what_is_pinned() {
    struct Count(Rc<()>, ThreadId, Arc<AtomicUsize>, Arc<AtomicUsize>);
    impl Count {
        fn new(alive: &Arc<AtomicUsize>, wrong: &Arc<AtomicUsize>) -> Count {
            alive.fetch_add(1, Ordering::Relaxed);
            Count(Rc::new(()), std::thread::current().id(), alive.clone(), wrong.clone())
        }
    }
    impl Drop for Count {
        fn drop(&mut self) {
            let _ = Rc::clone(&self.0);
            self.3.fetch_add(usize::from(std::thread::current().id() != self.1), Ordering::Relaxed);
            self.2.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (alive, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..crate::support::rounds(60) {
        let runtime = runtime(1 + round % 4);
        let handle = runtime.handle().clone();
        let colors: Vec<_> = (0..8).map(|n| handle.pinned_color(n % handle.workers())).collect();
        std::thread::scope(|scope| {
            for poster in 0..2 {
                let (colors, alive, wrong) = (&colors, &alive, &wrong);
                scope.spawn(move || {
                    for n in 0..300 {
                        let color = &colors[(n + poster) % 8];
                        let (count, wrongs) = (alive.clone(), wrong.clone());
                        let state = Pinned::new(color, move || Count::new(&count, &wrongs));
                        let (count, wrongs) = (alive.clone(), wrong.clone());
                        let task = colors[n * 7 % 8].spawn_pinned(move || async move {
                            let _count = Count::new(&count, &wrongs);
                            if n % 3 == 0 {
                                return pending().await;
                            }
                            yield_now().await;
                        });
                        match n % 4 {
                            0 => task.abort(),
                            1 => state.post(|_| ()),
                            2 => drop(colors[n % 8].spawn(async move { state.with(|_| ()).await })),
                            _ => drop(state),
                        }
                    }
                });
            }
            drop(runtime);
        });
        let until = Instant::now() + LONG;
        while alive.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!((alive.load(Ordering::Relaxed), wrong.load(Ordering::Relaxed)), (0, 0));
    }
}

#[test]
fn c4_a_closure_with_a_pinned_color_runs_on_its_worker() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let handle = runtime.handle();
    let shared = Colored::with_color(0, &handle.new_color_at(0));
    let pins: Vec<Color> = (0..3).map(Color::pinned).collect();
    let local = Pinned::new(&pins[1], || Rc::new(Cell::new(0)));
    let (tx, done) = collector::<()>();
    let wrong = Arc::new(AtomicUsize::new(0));
    for n in 0..3_000 {
        let (shared, pins, tx, wrong) = (shared.clone(), pins.clone(), tx.clone(), wrong.clone());
        let local = local.clone();
        let poster = if n % 2 == 0 { Color::new() } else { pins[n % 3].clone() };
        poster.post(move || {
            let closure = move |expected: usize| {
                let right =
                    here() == Some(expected) && (expected != 1 || local.try_with(|n| n.set(n.get() + 1)).is_ok());
                wrong.fetch_add(usize::from(!right), Ordering::Relaxed);
                drop(tx);
            };
            match n % 4 {
                0 => when((&shared, &pins[1])).post(move |(n, ())| (*n += 1, closure(1)).1),
                1 => when((&pins[2], &shared)).post(move |((), n)| (*n += 1, closure(2)).1),
                2 => when((&shared.reading(), &pins[1].reading())).post(move |_| closure(1)),
                _ => when((&Color::new(), &pins[0], &shared)).post(move |((), (), n)| (*n += 1, closure(0)).1),
            }
        });
    }
    drop(tx);
    done.all();
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    assert_eq!(shared.with_blocking(|n| *n), 2_250);
    assert_eq!(block_on(local.with(|n| n.get())), 1_500);
}

#[test]
fn c4_a_pinned_task_that_waits_for_several_colors_stays_where_it_is() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let others: Vec<_> = (0..4).map(|n| Colored::with_color(0, &runtime.handle().new_color_at(n % 3))).collect();
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let color = Color::pinned(n % 3);
            let (own, others) = (Colored::with_color(0, &color), others.clone());
            color.spawn_pinned(move || async move {
                let bound = Rc::new(());
                for turn in 0..100 {
                    let other = &others[(n + turn) % 4];
                    if (n + turn) % 4 == 3 {
                        when((&own, other)).with(|(a, b)| (*a += 1, *b += 1)).await;
                    } else {
                        when((&own, other, &others[3].reading())).with(|(a, b, _)| (*a += 1, *b += 1)).await;
                    }
                    assert_eq!(here(), Some(n % 3));
                }
                drop(bound);
            })
        })
        .collect();
    for task in tasks {
        block_on(task).unwrap();
    }
    assert_eq!(others.iter().map(|other| other.with_blocking(|n| *n)).sum::<i32>(), 6_000);
}

#[test]
#[should_panic(expected = "pinned to the workers 0 and 1: no callback could run on both")]
fn c4_colors_pinned_to_different_workers_are_refused() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    when((&Color::pinned(0), &Color::new(), &Color::pinned(1))).post(|_| ());
}

#[test]
fn colored_state_of_a_pinned_color_is_guarded_as_any() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::pinned(1);
    let count = Colored::with_color(0, &color);
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let count = count.clone();
            let add = async move { count.with(|n| *n += 1).await };
            if n % 2 == 0 { color.spawn(add) } else { spawn(add) }
        })
        .collect();
    count.post(|n| {
        assert_eq!(here(), Some(1));
        *n += 1;
    });
    for task in tasks {
        block_on(task).unwrap();
    }
    assert_eq!(count.with_blocking(|n| *n), 201);
}
