//! Workers that come and go while the others work.

use std::sync::Arc;

use dapple_sched::{Colored, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::support::{Log, Running, block_on, check, finish, in_order, post_around, with};

/// Changes the number of active workers a few times, and ends with one.
fn changes(running: &Running, workers: usize) -> thread::JoinHandle<()> {
    let model = running.model.clone();
    thread::spawn(move || {
        for _ in 0..2 {
            model.set_active(thread_rng().gen_range(1..=workers));
            thread::yield_now();
        }
        model.set_active(1);
    })
}

/// All workers have stopped.
fn finish_awake(running: Running) {
    let model = running.stop();
    assert_eq!(model.sleepers(), 0);
    finish(&model);
}

// Posts from outside, from colors, and to a pinned color, while any of three workers rests and
// returns.
//
// Caught: a worker that hands over and wakes no worker (deadlock); a color that is handed over and
// keeps its home (crash, overlap).
#[test]
fn posts_while_workers_come_and_go() {
    check(6_000, || {
        let running = Running::with_rests(3);
        let colors = [running.color(2), running.color(1), running.model.handle().pinned_color(2)];
        let logs = [Log::new(), Log::new(), Log::new()];
        let changes = changes(&running, 3);
        let poster = post_around(&colors, &logs);
        for log in &logs {
            in_order(&log.wait(5), &[&[1, 2, 3], &[11, 12]]);
        }
        poster.join().unwrap();
        changes.join().unwrap();
        // Everything that is not pinned has to leave a worker that sleeps while resting.
        (0..3).for_each(|color| logs[color].post(&colors[color], 21));
        logs.iter().for_each(|log| assert_eq!(log.wait(6)[5], 21));
        drop(colors);
        finish_awake(running);
    });
}

// Tasks wait for a state, yield and are joined, while workers come and go.
//
// Caught: light tasks that are handed over without waking the worker (deadlock).
#[test]
fn tasks_while_workers_come_and_go() {
    check(3_000, || {
        let running = Running::with_rests(2);
        let handle = running.model.handle();
        let entered = handle.enter();
        let state = Arc::new(Colored::new(0));
        let changes = changes(&running, 2);
        let polls = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (state, polls) = (state.clone(), polls.clone());
                handle.spawn(async move {
                    polls.fetch_add(1, Ordering::SeqCst);
                    yield_now().await;
                    state.with(|count| *count += 1).await;
                    yield_now().await;
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
        assert_eq!(block_on(state.with(|count| *count)), 3);
        assert_eq!(polls.load(Ordering::SeqCst), 3);
        changes.join().unwrap();
        drop((state, entered, handle));
        finish_awake(running);
    });
}

// A shutdown while workers come and go, and posts come in: every accepted callback has run or was
// dropped.
//
// Caught: colors that are handed over to a worker that has stopped (never freed).
#[test]
fn a_shutdown_while_workers_come_and_go() {
    check(6_000, || {
        let running = Running::with_rests(3);
        let handle = running.model.handle();
        let changes = changes(&running, 3);
        let alive = Arc::new(());
        let poster = with(&handle, {
            let (handle, alive) = (handle.clone(), alive.clone());
            move || {
                for home in [2, 1, 0, 2] {
                    let alive = alive.clone();
                    handle.new_color_at(home).post(move || drop(alive));
                }
            }
        });
        drop(handle);
        let model = running.stop();
        poster.join().unwrap();
        changes.join().unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(model.sleepers(), 0);
        finish(&model);
    });
}
