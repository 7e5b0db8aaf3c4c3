//! C6: no runnable color waits while a worker sleeps. The bound is two milliseconds; a test on a
//! shared machine can only check that the wait is not as long as the long callback on the other
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dapple_sched::{Color, Handle};

use crate::support::{LONG, collector, occupy, runtime};

#[test]
fn c6_colors_queued_behind_a_long_callback_run_elsewhere() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let handle = Handle::current();
    let home = handle.new_color_at(0);
    let (tx, seen) = collector();
    // The long callback posts them itself, so they are at home on its worker.
    let gate = crate::support::Gate::default();
    let inside = gate.clone();
    home.post(move || {
        for n in 0..10 {
            let tx = tx.clone();
            Color::new().post(move || tx.send(n).unwrap());
        }
        drop(tx);
        inside.wait();
    });
    assert_eq!(seen.all().len(), 10);
    gate.open();
}

#[test]
fn c6_what_comes_from_outside_is_taken_from_a_busy_worker() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let handle = Handle::current();
    let gate = occupy(&handle.new_color_at(0));
    for _ in 0..20 {
        let (tx, seen) = collector();
        handle.new_color_at(0).post(move || tx.send(()).unwrap());
        seen.all();
    }
    gate.open();
}

#[test]
fn c6_a_lone_post_wakes_exactly_one_worker() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let handle = Handle::current();
    let parks = || handle.stats().workers.iter().map(|worker| worker.parks).sum::<u64>();
    let settled = |least: u64| {
        let until = Instant::now() + LONG;
        while parks() < least {
            assert!(Instant::now() < until, "the workers do not go to sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    settled(4);
    std::thread::sleep(Duration::from_millis(20));
    const POSTS: usize = 50;
    let woken = |_| {
        let before = parks();
        let (tx, seen) = collector();
        Color::new().post(move || tx.send(()).unwrap());
        seen.all();
        // The woken worker sleeps again.
        settled(before + 1);
        std::thread::sleep(Duration::from_millis(2));
        parks() - before
    };
    let exactly_one = (0..POSTS).map(woken).filter(|&woken| woken == 1).count();
    // If the machine takes the core from the woken worker, another one helps after a millisecond.
    assert!(exactly_one > POSTS / 2, "only {exactly_one} of {POSTS} posts woke exactly one worker");
}

#[test]
fn c6_work_spreads_over_the_workers() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let spun = Arc::new(AtomicU64::new(0));
    let (tx, done) = collector::<()>();
    for _ in 0..200 {
        let (tx, spun) = (tx.clone(), spun.clone());
        Color::new().post(move || {
            let until = Instant::now() + Duration::from_micros(200);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            spun.fetch_add(1, Ordering::Relaxed);
            drop(tx);
        });
    }
    drop(tx);
    done.all();
    let stats = Handle::current().stats();
    assert!(stats.workers.iter().all(|worker| worker.callbacks > 0), "{stats:?}");
    assert!(stats.workers.iter().map(|worker| worker.colors_stolen).sum::<u64>() > 0, "{stats:?}");
}
