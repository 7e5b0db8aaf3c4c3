//! `watch`: senders change the value, drop, and are waited for, at once with receivers that look and wait.
//!
//! Caught: a receiver that looks at the version before it registers; a version that changes after the receivers are woken; a last sender
//! that wakes them before it closes.

use dapple_sync::sync::watch;
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

#[test]
fn the_last_value_and_the_end_reach_all_receivers() {
    check(|| {
        let (tx, mut rx) = watch::channel(0);
        let mut waits = rx.clone();
        let sends = thread::spawn(move || {
            tx.send_replace(1);
            tx.send_modify(|value| *value += 1);
        });
        let looks = thread::spawn(move || {
            block_on(async {
                let mut seen = Vec::new();
                while rx.changed().await.is_ok() {
                    seen.push(*rx.borrow_and_update());
                }
                seen
            })
        });
        let waited =
            thread::spawn(move || block_on(async { waits.wait_for(|value| *value == 2).await.map(|value| *value) }));
        let seen = looks.join().unwrap();
        assert!(seen.is_sorted_by(|one, next| one < next) && seen.last() == Some(&2), "{seen:?}");
        assert_eq!(waited.join().unwrap(), Ok(2));
        sends.join().unwrap();
    });
}

#[test]
fn a_sender_learns_that_the_last_receiver_is_gone() {
    check(|| {
        let (tx, rx) = watch::channel(0);
        let drops = [rx.clone(), rx].map(|rx| thread::spawn(move || drop(rx)));
        block_on(tx.closed());
        assert_eq!(tx.send(1).map_err(|refused| refused.0), Err(1));
        for one in drops {
            one.join().unwrap();
        }
    });
}
