//! Limits: several threads take, await and give up permits at once.
//!
//! Caught: a dropped wait that keeps its granted permit; a returned permit without a wake of the
//! first waiter.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use dapple_sync::sync::limit::Limit;
use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

#[test]
fn as_many_are_in_as_may_be_and_none_waits_for_ever() {
    check(|| {
        let limit = Limit::new(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (limit, inside) = (limit.clone(), inside.clone());
                thread::spawn(move || {
                    let _permit = block_on(limit.acquire()).expect("the line is unbounded");
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((limit.used(), limit.waiting_len()), (0, 0));
    });
}

#[test]
fn one_that_gives_up_takes_no_permit_along() {
    check(|| {
        let limit = Limit::new(1);
        let own = limit.clone();
        let holds = thread::spawn(move || drop(block_on(own.acquire())));
        let own = limit.clone();
        let hasty = thread::spawn(move || {
            let mut acquire = pin!(own.acquire());
            drop(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            thread::yield_now();
        });
        drop(block_on(limit.acquire()).expect("the line is unbounded"));
        holds.join().unwrap();
        hasty.join().unwrap();
        assert!(limit.try_acquire().is_some());
    });
}

#[test]
fn a_close_ends_every_wait() {
    check(|| {
        let limit = Limit::new(1);
        let permit = limit.try_acquire();
        let own = limit.clone();
        let waits = thread::spawn(move || block_on(own.acquire()).is_ok());
        let own = limit.clone();
        let closes = thread::spawn(move || own.close());
        drop(permit);
        waits.join().unwrap();
        closes.join().unwrap();
        assert!(block_on(limit.acquire()).is_err());
        assert_eq!(limit.used(), 0);
    });
}
