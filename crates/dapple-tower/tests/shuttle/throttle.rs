//! Throttles: a waiting ticket is released when the clock of the model says so, even if others are
//! dropped. A result that is given twice or never fails here; a waiter that is not woken is a
//! deadlock.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use dapple_tower::throttle::{Class, Key, Rate, Throttle, ThrottleLayer};
use dapple_tower::{BoxError, Reason, time_model};
use shuttle::future::block_on;
use shuttle::thread;
use tower::{Layer, Service, ServiceExt};

use super::{check, poll_once};

const SCHEDULES: usize = 5_000;
/// The amount that can be kept for later, and is used first.
const BURST: u64 = 9;

/// The released tickets; the clock runs until all have ended.
#[derive(Clone, Default)]
struct Ends {
    passed: Arc<AtomicUsize>,
    over: Arc<AtomicUsize>,
}

impl Ends {
    /// A ticket of cost 1 was released: not before the rate of one a second allows it.
    fn pass(&self) {
        let passed = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        let allowed = time_model::passed().as_secs() as usize;
        assert!(passed <= allowed, "{passed} were released in a time for {allowed}");
        self.end();
    }

    fn end(&self) {
        self.over.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets time pass from timer to timer until this many have ended.
    fn run_clock(&self, ends: usize) -> thread::JoinHandle<()> {
        let over = self.over.clone();
        thread::spawn(move || {
            while over.load(Ordering::SeqCst) < ends {
                time_model::pass();
                thread::yield_now();
            }
        })
    }
}

/// Checks that the unused amount is there, and no more.
fn finish<K: Key>(throttle: &Throttle<K>, key: &K, used: usize) {
    assert_eq!(throttle.waiting_len(), 0);
    let left = time_model::passed().as_secs() as usize - used;
    for _ in 0..left {
        assert!(throttle.try_take(key, 1).is_ok(), "something was taken and not used");
    }
    assert!(throttle.try_take(key, 1).is_err(), "something was given back twice");
}

// Three wait in one queue; a fourth is dropped, while queued or with a grant.
#[test]
fn all_go_at_the_rate_and_a_dropped_waiter_takes_nothing() {
    check(SCHEDULES, || {
        let throttle = Throttle::bucket(Rate::per_second(1)).burst(BURST);
        throttle.try_take(&(), BURST).unwrap();
        let ends = Ends::default();
        let hasty = {
            let throttle = throttle.clone();
            thread::spawn(move || {
                let waits = pin!(throttle.until_ready(&(), 1));
                let used = poll_once(waits).is_ready();
                thread::yield_now();
                used
            })
        };
        let waiters = [0; 3].map(|_| {
            let (throttle, ends) = (throttle.clone(), ends.clone());
            thread::spawn(move || {
                block_on(throttle.until_ready(&(), 1)).unwrap();
                ends.pass();
            })
        });
        let clock = ends.run_clock(3);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        clock.join().unwrap();
        finish(&throttle, &(), 3 + usize::from(hasty.join().unwrap()));
    });
}

// The line of one key is full; a ticket of another key comes, and the last ticket of the first key
// has to go.
#[test]
fn a_ticket_that_makes_room_is_woken_and_the_bound_is_kept() {
    check(SCHEDULES, || {
        let throttle: Throttle<u8> = Throttle::fair(Rate::per_second(1)).burst(BURST).waiting_max(2);
        throttle.try_take(&0, BURST).unwrap();
        let (ends, cut) = (Ends::default(), Arc::new(AtomicUsize::new(0)));
        let waiters = [0, 0, 1].map(|key| {
            let (throttle, ends, cut) = (throttle.clone(), ends.clone(), cut.clone());
            thread::spawn(move || {
                let told = block_on(throttle.until_ready(&key, 1));
                assert!(throttle.waiting_len() <= 2);
                match told {
                    Ok(()) => return ends.pass(),
                    Err(refused) => assert!(
                        matches!(refused.reason, Reason::Share { len: 2 } | Reason::Full { len: 2 }),
                        "{refused}"
                    ),
                }
                cut.fetch_add(1, Ordering::SeqCst);
                ends.end();
            })
        });
        let clock = ends.run_clock(3);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        clock.join().unwrap();
        let cut = cut.load(Ordering::SeqCst);
        assert!(cut <= 1);
        finish(&throttle, &0, 3 - cut);
    });
}

/// Ready for a caller that never polls, and not for one that does.
#[derive(Clone)]
struct Sink {
    is_ready: bool,
}

impl Service<u8> for Sink {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.is_ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: u8) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

// One ticket is released, finds the service busy and is dropped: its grant goes to the others,
// which wait in classes.
#[test]
fn an_unused_grant_goes_to_the_next() {
    check(SCHEDULES, || {
        let classes = [Class::new(0, 1), Class::new(1, 1)];
        let throttle = Throttle::classes(Rate::per_second(1), classes).burst(BURST);
        throttle.try_take(&0, BURST).unwrap();
        let layer = ThrottleLayer::new(throttle.clone(), |key: &u8| (*key, 1));
        let ends = Ends::default();
        let hasty = {
            let mut service = layer.layer(Sink { is_ready: false });
            thread::spawn(move || {
                let mut response = pin!(service.call(0));
                for _ in 0..2 {
                    assert!(poll_once(response.as_mut()).is_pending());
                    thread::yield_now();
                }
            })
        };
        let callers = [0, 1].map(|key| {
            let (service, ends) = (layer.layer(Sink { is_ready: true }), ends.clone());
            thread::spawn(move || {
                block_on(service.oneshot(key)).unwrap();
                ends.pass();
            })
        });
        let clock = ends.run_clock(2);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        clock.join().unwrap();
        hasty.join().unwrap();
        finish(&throttle, &0, 2);
    });
}
