//! Scenes with a part for each of a few threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dapple_sched::{Color, Colored, yield_now};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::support::{Count, Log, Running, block_on, check, finish, in_order, post_around};

// Posts from outside, from the color itself and from another color, on two workers that steal and
// sleep.
//
// Caught: an early drain that clears NOTIFIED, and `push_inbox` that tells every poster to link
// (lists become rings).
#[test]
fn posts_from_everywhere() {
    check(20_000, || {
        let running = Running::start(2);
        let (color, other) = (running.color(0), running.color(1));
        let log = Log::new();
        let poster = thread::spawn({
            let (color, log) = (color.clone(), log.clone());
            move || (1..4).for_each(|n| log.post(&color, n))
        });
        let (from_other, to) = (log.clone(), color.clone());
        other.post(move || (11..14).for_each(|n| from_other.post(&to, n)));
        let (own, again) = (log.clone(), color.clone());
        color.post(move || {
            own.add(21);
            own.post(&again, 22);
        });
        in_order(&log.wait(8), &[&[1, 2, 3], &[11, 12, 13], &[21, 22]]);
        poster.join().unwrap();
        drop((color, other));
        running.finish();
    });
}

// Three workers rob each other, marked overdue again and again; the color's posts come from all
// sides.
//
// Caught, from our own history: `steal_news` that links an idle color again after clearing its bit
// (use after free). And: `take_news` that drops colors with a moved home (never freed).
#[test]
fn colors_are_stolen() {
    check(12_000, || {
        let running = Running::start(3);
        let colors: Vec<Color> = (0..3).map(|_| running.color(0)).collect();
        let logs: Vec<Log> = (0..3).map(|_| Log::new()).collect();
        let monitor = thread::spawn({
            let model = running.model.clone();
            move || {
                for victim in [0, 1, 0, 2, 0] {
                    model.mark_overdue(victim);
                    thread::yield_now();
                }
            }
        });
        let poster = post_around(&colors, &logs);
        for log in &logs {
            in_order(&log.wait(5), &[&[1, 2, 3], &[11, 12]]);
        }
        monitor.join().unwrap();
        poster.join().unwrap();
        drop(colors);
        running.finish();
    });
}

// Workers fall asleep between posts, which come from outside and from releases of a held color.
//
// Caught: `link_remote` without unpark (deadlock).
#[test]
fn sleepers_are_woken() {
    check(20_000, || {
        let running = Running::start(2);
        let state = Colored::with_color((), &running.color(1));
        let (log, released) = (Log::new(), Log::new());
        let color = running.color(0);
        let mut held = 0;
        for n in 1..4 {
            log.post(&color, n);
            let inner = released.clone();
            if state.try_with(|()| state.post(move |()| inner.add(0))).is_ok() {
                held += 1;
                released.wait(held);
            }
            log.wait(n as usize);
        }
        in_order(&log.wait(3), &[&[1, 2, 3]]);
        drop((color, state));
        running.finish();
    });
}

// Everything is in progress when the workers stop: each closure and each task is run or dropped,
// once.
//
// Caught: `exit` that leaves linked colors (closures neither run nor dropped).
#[test]
fn a_shutdown_in_the_middle() {
    check(20_000, || {
        let running = Running::start(2);
        let handle = running.model.handle();
        let colors = [running.color(0), running.color(1)];
        let gone = Arc::new(AtomicUsize::new(0));
        let poster = thread::spawn({
            let (colors, gone) = (colors.clone(), gone.clone());
            move || {
                for n in 0..4 {
                    let count = Count(gone.clone());
                    let again = colors[(n + 1) % 2].clone();
                    colors[n % 2].post(move || again.post(move || drop(count)));
                }
            }
        });
        let task = colors[0].spawn({
            let (count, color) = (Count(gone.clone()), colors[1].clone());
            async move {
                let _count = count;
                yield_now().await;
                color.post(|| ());
                std::future::pending::<()>().await;
            }
        });
        running.model.mark_overdue(0);
        drop(handle);
        let model = running.stop();
        poster.join().unwrap();
        assert_eq!(gone.load(Ordering::SeqCst), 5);
        assert!(task.is_finished());
        drop((task, colors));
        finish(&model);
    });
}

// Tasks, foreign executors, posts and futures that are dropped while they wait, on one state.
//
// Caught, in the shipped code: a turn that ended at a waiter and forgot it because something new
// had arrived (deadlock). And: a dropped future that keeps its grant, and a turn that does not tell
// a waiter that it was missed (deadlock).
#[test]
fn a_state_is_contended() {
    check(12_000, || {
        let running = Running::start(2);
        let handle = running.model.handle();
        let state = Colored::with_color(0, &running.color(0));
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let state = state.clone();
                handle.spawn(async move {
                    state.with(|n| *n += 1).await;
                    yield_now().await;
                    state.with(|n| *n += 1).await;
                })
            })
            .collect();
        let foreign = thread::spawn({
            let state = state.clone();
            move || {
                block_on(state.with(|n| *n += 10));
                let mut canceled = Box::pin(state.with(|n| *n += 1_000));
                let ready = canceled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                drop(canceled);
                usize::from(ready)
            }
        });
        state.post(|n| *n += 100);
        for task in tasks {
            block_on(task).unwrap();
        }
        let ready = foreign.join().unwrap();
        assert_eq!(block_on(state.with(|n| *n)), 114 + 1_000 * ready);
        drop((state, handle));
        running.finish();
    });
}

// A task holds two grants while it waits for a third: unused ones are taken back.
//
// Caught: grants that are not noted with their task, and so not taken back (deadlock).
#[test]
fn an_unused_grant_blocks_no_task() {
    check(12_000, || {
        let running = Running::start(2);
        let handle = running.model.handle();
        let states: Vec<_> = (0..2).map(|home| Colored::with_color(0, &running.color(home))).collect();
        let tasks: Vec<_> = (0..2)
            .map(|n: usize| {
                let (first, second) = (states[n].clone(), states[1 - n].clone());
                handle.spawn(async move {
                    let mut idle = pin!(first.with(|n| *n += 1));
                    let ready = std::future::poll_fn(|cx| Poll::Ready(idle.as_mut().poll(cx).is_ready())).await;
                    second.with(|n| *n += 10).await;
                    if !ready {
                        idle.await;
                    }
                })
            })
            .collect();
        states.iter().for_each(|state| state.post(|n| *n += 100));
        for task in tasks {
            block_on(task).unwrap();
        }
        for state in &states {
            assert_eq!(block_on(state.with(|n| *n)), 111);
        }
        drop((states, handle));
        running.finish();
    });
}

// Tasks are woken, aborted, joined and left alone.
//
// Caught: SCHEDULED cleared after the poll instead of before (deadlock).
#[test]
fn tasks_are_woken_aborted_and_joined() {
    check(12_000, || {
        let running = Running::start(2);
        let handle = running.model.handle();
        let gone = Arc::new(AtomicUsize::new(0));
        let first = handle.spawn({
            let count = Count(gone.clone());
            async move {
                let _count = count;
                yield_now().await;
                1
            }
        });
        let second = handle.spawn({
            let count = Count(gone.clone());
            async move {
                let _count = count;
                first.await.unwrap() + 1
            }
        });
        let third = handle.spawn({
            let count = Count(gone.clone());
            async move {
                let _count = count;
                std::future::pending::<()>().await;
            }
        });
        drop(handle.spawn(async { yield_now().await }));
        let aborter = thread::spawn(move || {
            third.abort();
            block_on(third).unwrap_err().is_aborted()
        });
        assert_eq!(block_on(second).unwrap(), 2);
        assert!(aborter.join().unwrap());
        drop(handle);
        running.finish();
        assert_eq!(gone.load(Ordering::SeqCst), 3);
    });
}

// Named colors are looked up, posted to and forgotten by two threads and by their own callbacks.
//
// Caught: `Dead::is` that ignores the inbox (use after free).
#[test]
fn names_come_and_go() {
    check(20_000, || {
        let running = Running::start(2);
        let log = Log::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (handle, log) = (running.model.handle(), log.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let color = handle.named_color(7);
                        let inner = log.clone();
                        color.post(move || {
                            inner.add(0);
                            inner.post(&Color::named(7), 1);
                        });
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        log.wait(8);
        running.finish();
    });
}
