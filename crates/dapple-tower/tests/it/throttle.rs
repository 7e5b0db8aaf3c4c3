//! Throttles from the caller's side.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use dapple_tower::middleware::{RateLimitLayer, ShedLayer};
use dapple_tower::throttle::{Class, Rate, Throttle, ThrottleLayer, UntilReady};
use dapple_tower::{Reason, Refused};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::executors::{on_each, poll_once};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// One now, and the next one in an hour.
fn hourly() -> Throttle {
    Throttle::bucket(Rate::new(1, HOUR))
}

#[test]
fn waiters_go_at_the_rate() {
    on_each(|| async {
        let throttle = Throttle::bucket(Rate::per_second(200)).burst(1);
        let start = Instant::now();
        for _ in 0..11 {
            throttle.until_ready(&(), 1).await.unwrap();
        }
        assert!(start.elapsed() >= 50 * MS, "{:?}", start.elapsed());
        throttle.until_ready(&(), 0).await.unwrap();
    });
}

#[test]
fn a_waiter_that_is_not_polled_holds_up_no_other() {
    on_each(|| async {
        let throttle = Throttle::bucket(Rate::per_second(100)).burst(1);
        throttle.until_ready(&(), 1).await.unwrap();
        let mut sleepy = Box::pin(throttle.until_ready(&(), 1));
        assert!(poll_once(sleepy.as_mut()).is_pending());
        // In line after one with a task that is not polled again.
        throttle.until_ready(&(), 1).await.unwrap();
        assert!(poll_once(sleepy.as_mut()).is_ready());
    });
}

#[test]
fn a_dropped_waiter_leaves_the_line_and_gives_its_grant_back() {
    let throttle = hourly();
    let mut first = Box::pin(throttle.until_ready(&(), 1));
    let mut second = Box::pin(throttle.until_ready(&(), 1));
    assert!(poll_once(first.as_mut()).is_ready());
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(throttle.waiting_len(), 1);
    drop(second);
    assert_eq!(throttle.waiting_len(), 0);

    // Granted to a waiter that does not look before it is dropped.
    let throttle = Throttle::bucket(Rate::new(1, 20 * MS));
    throttle.try_take(&(), 1).unwrap();
    let mut granted = Box::pin(throttle.until_ready(&(), 1));
    assert!(poll_once(granted.as_mut()).is_pending());
    while throttle.waiting_len() > 0 {
        std::thread::yield_now();
    }
    drop(granted);
    assert!(throttle.try_take(&(), 1).is_ok());
}

#[test]
fn what_cannot_be_had_now_is_refused_with_the_time_to_wait() {
    let throttle = Throttle::bucket(Rate::new(60, HOUR)).burst(2);
    assert!(throttle.try_take(&(), 2).is_ok());
    let refused = throttle.try_take(&(), 1).unwrap_err();
    assert_eq!(refused.reason, Reason::Rate);
    assert!(refused.retry_after > 59 * 1_000 * MS && refused.retry_after <= 60 * 1_000 * MS, "{refused:?}");
    assert_eq!(throttle.waiting_len(), 0);
    assert!(throttle.try_take(&(), 0).is_ok());
    let classes = Throttle::classes(Rate::per_second(1), [Class::new("a", 1)]);
    assert_eq!(classes.try_take(&"b", 1).unwrap_err().reason, Reason::Rate);
    assert!(dapple_sched::block_on(classes.until_ready(&"b", 1)).is_err());
}

#[test]
fn a_line_is_bounded_and_the_key_with_most_in_it_makes_room() {
    let throttle: Throttle<u8> = Throttle::fair(Rate::new(1, HOUR)).waiting_max(4);
    throttle.try_take(&0, 1).unwrap();
    let mut lines: Vec<_> = (0..4).map(|_| Box::pin(throttle.until_ready(&0, 1))).collect();
    for waits in &mut lines {
        assert!(poll_once(waits.as_mut()).is_pending());
    }
    let refused = dapple_sched::block_on(throttle.until_ready(&0, 1)).unwrap_err();
    assert_eq!(refused.reason, Reason::Full { len: 4 });
    assert!(refused.retry_after > HOUR - 60 * 1_000 * MS);
    let mut other = Box::pin(throttle.until_ready(&1, 1));
    assert!(poll_once(other.as_mut()).is_pending());
    let displaced = dapple_sched::block_on(lines.pop().unwrap()).unwrap_err();
    assert_eq!(displaced.reason, Reason::Share { len: 4 });
    assert_eq!(throttle.waiting_len(), 4);
    drop(other);
    drop(lines);
    assert_eq!(throttle.waiting_len(), 0);
}

#[test]
fn a_service_waits_for_its_turn_and_is_not_called_if_that_is_given_up() {
    on_each(|| async {
        let throttle: Throttle<u8> = Throttle::fair(Rate::per_second(100)).burst(1);
        let layer = ThrottleLayer::new(throttle.clone(), |key: &u8| (*key, 1));
        let service = layer.layer(service_fn(async |key: u8| Ok::<_, Infallible>(key)));
        let start = Instant::now();
        for key in 0..4 {
            assert_eq!(service.clone().oneshot(key).await.unwrap(), key);
        }
        assert!(start.elapsed() >= 30 * MS);
        let mut given_up = Box::pin(service.clone().oneshot(1));
        let _ = poll_once(given_up.as_mut());
        drop(given_up);
        assert_eq!(throttle.waiting_len(), 0);
    });
}

#[test]
fn a_rate_limit_is_shared_by_clones_and_gives_back_what_is_not_used() {
    on_each(|| async {
        let service = RateLimitLayer::new(1, 30 * MS).layer(service_fn(async |n: u8| Ok::<_, Infallible>(n)));
        let start = Instant::now();
        for n in 0..4 {
            assert_eq!(service.clone().oneshot(n).await.unwrap(), n);
        }
        assert!(start.elapsed() >= 90 * MS);
    });
    let service = RateLimitLayer::new(1, HOUR).layer(service_fn(async |n: u8| Ok::<_, Infallible>(n)));
    let (mut one, mut other) = (service.clone(), service);
    assert!(poll_once(pin!(one.ready())).is_ready());
    assert!(poll_once(pin!(other.ready())).is_pending());
    drop(one);
    dapple_sched::block_on(async { other.ready().await.unwrap().call(1).await.unwrap() });
}

#[test]
fn a_shed_around_a_rate_limit_says_when_to_come_back() {
    on_each(|| async {
        let layers = ServiceBuilder::new().layer(ShedLayer::new()).layer(RateLimitLayer::new(2, HOUR));
        let service = layers.service(service_fn(async |n: u8| Ok::<_, Infallible>(n)));
        for n in 0..2 {
            assert_eq!(service.clone().oneshot(n).await.unwrap(), n);
        }
        let error = service.oneshot(2).await.unwrap_err();
        let refused = Refused::find(&*error).unwrap();
        assert_eq!(refused.reason, Reason::Rate);
        assert!(refused.retry_after > HOUR / 2 - 60 * 1_000 * MS && refused.retry_after <= HOUR / 2);
    });
}

#[test]
fn an_hour_of_a_clock_that_stands_still_is_waited_for_at_once() {
    let mut config = dapple_io::Config::default();
    config.standing_clock = true;
    let runtime = dapple_io::runtime_builder_with(config).workers(1).build().unwrap();
    runtime.block_on(async {
        let throttle = hourly();
        for _ in 0..5 {
            throttle.until_ready(&(), 1).await.unwrap();
        }
    });
}

#[test]
fn a_runtime_that_ends_leaves_others_in_line() {
    let throttle = Throttle::bucket(Rate::new(1, 50 * MS));
    throttle.try_take(&(), 1).unwrap();
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let task = runtime.spawn(throttle.until_ready(&(), 1));
    while throttle.waiting_len() == 0 {
        std::thread::yield_now();
    }
    let waits: UntilReady = throttle.until_ready(&(), 1);
    let waits = std::thread::spawn(move || dapple_sched::block_on(waits));
    drop(task);
    drop(runtime);
    waits.join().unwrap().unwrap();
}

#[test]
fn many_threads_get_what_the_rate_gives_and_no_more() {
    let throttle: Throttle<u8> = Throttle::fair(Rate::per_second(2_000)).burst(10);
    let start = Instant::now();
    let threads = (0..4).map(|key| {
        let throttle = throttle.clone();
        std::thread::spawn(move || {
            let waits = async {
                for _ in 0..100 {
                    throttle.until_ready(&key, 1).await.unwrap();
                }
            };
            block_on_send(waits);
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert!(start.elapsed() >= Duration::from_micros(390 * 500), "{:?}", start.elapsed());
}

fn block_on_send(future: impl Future<Output = ()> + Send) {
    dapple_sched::block_on(future);
}
