use std::time::{Duration, Instant};

use super::{Class, Config, Controller, Offer, State};
use crate::{Reason, Refused};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A controller of one processor that has seen requests of 10 ms, and the time.
fn learned(config: Config) -> (Controller, Instant) {
    let mut controller = Controller::new(config, 1);
    let mut now = Instant::now();
    for _ in 0..20 {
        let key = controller.offer(Offer::arrived(now), now).expect("the controller is idle");
        now += ms(10);
        controller.finish(key, ms(10), now);
    }
    (controller, now)
}

fn fill(controller: &mut Controller, offer: Offer, now: Instant) -> (Vec<usize>, Refused) {
    let mut keys = Vec::new();
    loop {
        match controller.offer(offer, now) {
            Ok(key) => keys.push(key),
            Err(refused) => return (keys, refused),
        }
    }
}

fn dropped(controller: &Controller, key: usize) -> Option<Reason> {
    match controller.state(key) {
        State::Dropped(refused) => Some(refused.reason.clone()),
        _ => None,
    }
}

#[test]
fn a_refusal_says_how_late_it_would_be() {
    let (mut controller, now) = learned(Config::default());
    let (keys, refused) = fill(&mut controller, Offer::arrived(now), now);
    assert!((6..=9).contains(&keys.len()), "{} of 10 ms each", keys.len());
    let Reason::Delay { predicted, target } = refused.reason else { panic!("{refused}") };
    assert!(target > ms(70) && target <= ms(100), "{target:?}");
    assert!(predicted > target && predicted <= ms(110), "{predicted:?}");
    assert!(refused.retry_after >= ms(60), "{:?}", refused.retry_after);
    assert_eq!(controller.stats(now).waiting, keys.len() - 1);
}

#[test]
fn what_it_has_waited_outside_counts() {
    let (mut controller, now) = learned(Config::default());
    let _running = controller.offer(Offer::arrived(now), now).unwrap();
    let late = controller.offer(Offer::arrived(now - ms(85)), now).unwrap_err();
    assert!(matches!(late.reason, Reason::Delay { .. }), "{late}");
    assert!(controller.offer(Offer::arrived(now - ms(40)), now).is_ok());
}

#[test]
fn after_a_standstill_what_has_waited_is_served() {
    let (mut controller, now) = learned(Config::default());
    // Nothing has run for a second, so this service did not cause the wait.
    let now = now + ms(1_000);
    assert!(controller.offer(Offer::arrived(now - ms(500)), now).is_ok());
}

#[test]
fn a_higher_class_passes_and_lower_ones_are_shed() {
    let (mut controller, now) = learned(Config::default());
    let (low, _) = fill(&mut controller, Offer::arrived(now).class(Class::LOW), now);
    let high = controller.offer(Offer::arrived(now).class(Class::HIGH), now).expect("only what runs is ahead of it");
    assert_eq!(dropped(&controller, *low.last().unwrap()), Some(Reason::Class), "the newest makes room");
    assert_eq!(dropped(&controller, low[1]), None);
    controller.finish(low[0], ms(10), now + ms(10));
    assert_eq!(*controller.state(high), State::Granted, "it goes before all that wait");
    // Requests that fit drop those of the others, and none of their own class.
    let (more, refused) = fill(&mut controller, Offer::arrived(now).class(Class::HIGH), now + ms(10));
    assert!(matches!(refused.reason, Reason::Delay { .. }), "{refused}");
    let left = low[1..].iter().filter(|&&key| dropped(&controller, key) != Some(Reason::Class)).count();
    assert!(left <= 1, "{left} still wait behind {} others", more.len());
    assert!(more.iter().all(|&key| dropped(&controller, key).is_none()));
}

#[test]
fn what_is_vital_is_taken_whatever_the_load_unless_it_is_the_load() {
    let (mut controller, now) = learned(Config::default());
    let (normal, _) = fill(&mut controller, Offer::arrived(now), now);
    let (vital, refused) = fill(&mut controller, Offer::arrived(now).class(Class::VITAL), now);
    // Some 100 ms of work wait already, and each of these adds 10 ms.
    assert_eq!(vital.len(), 16);
    assert!(matches!(refused.reason, Reason::Delay { .. }), "{refused}");
    assert!(normal[1..].iter().all(|&key| dropped(&controller, key).is_none()), "this makes no request late yet");
}

#[test]
fn one_client_cannot_shed_the_others() {
    let (mut controller, now) = learned(Config::default());
    let (greedy, _) = fill(&mut controller, Offer::arrived(now).client(1), now);
    for client in 2..=4 {
        controller.offer(Offer::arrived(now).client(client), now).expect("it has nothing, and another has much");
    }
    let shed = greedy.iter().filter(|&&key| matches!(dropped(&controller, key), Some(Reason::Share { .. }))).count();
    assert_eq!(shed, 3);
    let refused = controller.offer(Offer::arrived(now).client(1), now).unwrap_err();
    assert!(matches!(refused.reason, Reason::Share { .. }), "{refused}");
    // They take turns.
    let mut order = Vec::new();
    let mut now = now;
    while let Some(key) = controller.granted.first().copied() {
        order.push(controller.requests[key].offer.client);
        now += ms(10);
        controller.finish(key, ms(10), now);
    }
    assert_eq!(order[..5], [1, 1, 2, 3, 4]);
}

#[test]
fn a_request_given_up_early_counts_for_its_client() {
    let (mut controller, now) = learned(Config::default());
    let key = controller.offer(Offer::arrived(now).client(7), now).unwrap();
    controller.suspend(key, ms(9), now + ms(9));
    controller.end(key, now + ms(10));
    let had_ms = controller.recent.of(7, now + ms(10)) / 1e6;
    assert!((8.0..=9.0).contains(&had_ms), "{had_ms} of 9 ms");
}

/// At most one waits if a handler takes half of the target.
#[test]
fn nor_where_handlers_are_long() {
    let (mut controller, mut now) = learned(Config::default());
    let mut waiting = Vec::new();
    let mut running = None;
    let (mut offered, mut served) = ([0; 3], [0; 3]);
    let mut end = now;
    for round in 0..60_000u64 {
        now += ms(1);
        if running.is_some() && now >= end {
            controller.finish(running.take().unwrap(), ms(50), now);
        }
        // One client offers a hundred times the capacity, the other three tenths of it.
        for (client, period) in [(1, 2), (2, 167)] {
            if round % period == 0 {
                offered[client] += 1;
                waiting.extend(controller.offer(Offer::arrived(now).client(client as u64), now));
            }
        }
        waiting.retain(|&key| match controller.state(key) {
            State::Dropped(_) => {
                controller.end(key, now);
                false
            }
            State::Granted => {
                served[controller.requests[key].offer.client as usize] += 1;
                (running, end) = (Some(key), now + ms(50));
                false
            }
            _ => true,
        });
    }
    assert!(served[2] * 10 >= offered[2] * 8, "{} of {}", served[2], offered[2]);
    assert!(served[1] + served[2] >= 1_000, "{served:?} in 60 s");
}

#[test]
fn a_deadline_drops_what_waits_and_refuses_what_cannot_meet_it() {
    let (mut controller, now) = learned(Config::default());
    let running = controller.offer(Offer::arrived(now), now).unwrap();
    let first = controller.offer(Offer::arrived(now).deadline(now + ms(25)), now).unwrap();
    let second = controller.offer(Offer::arrived(now), now).unwrap();
    let refused = controller.offer(Offer::arrived(now).deadline(now + ms(25)), now).unwrap_err();
    assert_eq!(refused.reason, Reason::Deadline);
    // The running request takes longer than usual; the offer of a third one makes the controller
    // look at the time.
    let third = controller.offer(Offer::arrived(now + ms(26)), now + ms(26)).unwrap();
    assert_eq!(dropped(&controller, first), Some(Reason::Deadline));
    controller.finish(running, ms(30), now + ms(30));
    assert_eq!(*controller.state(second), State::Granted);
    controller.end(third, now + ms(30));
    controller.end(first, now + ms(30));
    let stats = controller.stats(now + ms(30));
    assert_eq!((stats.dropped, stats.cancelled, stats.waiting, stats.in_service), (1, 1, 0, 1));
}

#[test]
fn what_costs_no_more_than_a_refusal_is_never_refused() {
    let (mut controller, mut now) = learned(Config::default());
    for _ in 0..20 {
        let key = controller.offer(Offer::arrived(now).kind(7), now).unwrap();
        now += Duration::from_micros(20);
        controller.finish(key, Duration::from_micros(20), now);
    }
    fill(&mut controller, Offer::arrived(now), now);
    for _ in 0..5_000 {
        let key = controller.offer(Offer::arrived(now).kind(7), now).expect("cheap");
        assert_eq!(*controller.state(key), State::Granted);
    }
}

#[test]
fn handlers_that_wait_for_long_are_not_work_ahead() {
    let (mut controller, mut now) = learned(Config::default());
    // A thousand that run briefly, then wait for a minute, and then run for 10 ms.
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        let key = controller.offer(Offer::arrived(now), now).expect("no request is ahead of it");
        now += ms(1);
        controller.suspend(key, ms(1), now);
        waiting.push(key);
        now += ms(600);
        if waiting.len() > 100 {
            let key = waiting.remove(0);
            controller.resume(key, now);
            controller.finish(key, ms(9), now + ms(9));
            now += ms(9);
        }
    }
    assert_eq!(controller.stats(now).refused, 0);
}

#[test]
fn what_is_resumed_goes_before_what_has_not_begun() {
    let (mut controller, now) = learned(Config::default());
    let first = controller.offer(Offer::arrived(now), now).unwrap();
    let second = controller.offer(Offer::arrived(now), now).unwrap();
    let third = controller.offer(Offer::arrived(now), now).unwrap();
    controller.suspend(first, ms(2), now + ms(2));
    assert_eq!(*controller.state(second), State::Granted);
    controller.resume(first, now + ms(3));
    assert_eq!(*controller.state(first), State::Resuming);
    controller.finish(second, ms(10), now + ms(12));
    assert_eq!(*controller.state(first), State::Granted);
    controller.finish(first, ms(8), now + ms(20));
    assert_eq!(*controller.state(third), State::Granted);
}

#[test]
fn both_limits_hold_whatever_is_offered() {
    let config = Config { queue_len_max: 3, in_service_max: 5, target_delay: ms(3_600_000), processors: Some(1) };
    let (mut controller, now) = learned(config);
    let (keys, refused) = fill(&mut controller, Offer::arrived(now), now);
    assert_eq!((keys.len(), refused.reason), (4, Reason::Full { len: 3 }));
    for &key in &keys {
        controller.suspend(key, ms(1), now);
    }
    let (more, refused) = fill(&mut controller, Offer::arrived(now), now);
    assert_eq!((more.len(), refused.reason), (1, Reason::Full { len: 5 }), "in service");
}

#[test]
fn every_way_out_gives_the_processor_to_the_next() {
    let (mut controller, now) = learned(Config::default());
    let keys: Vec<_> = (0..4).map(|_| controller.offer(Offer::arrived(now), now).unwrap()).collect();
    controller.end(keys[0], now);
    assert_eq!(*controller.state(keys[1]), State::Granted, "the first was given up while it ran");
    controller.end(keys[2], now);
    controller.suspend(keys[1], ms(1), now);
    assert_eq!(*controller.state(keys[3]), State::Granted);
    controller.end(keys[1], now);
    controller.finish(keys[3], ms(10), now);
    let stats = controller.stats(now);
    assert_eq!((stats.in_service, stats.waiting, stats.cancelled, stats.finished), (0, 0, 3, 21));
    assert_eq!(controller.work_ahead_ns(Class::LOW, now), 0);
}

#[test]
fn before_the_first_end_no_request_is_refused_for_delay() {
    let mut controller = Controller::new(Config { in_service_max: 50, ..Config::default() }, 1);
    let now = Instant::now();
    let (keys, refused) = fill(&mut controller, Offer::arrived(now), now);
    assert_eq!((keys.len(), refused.reason), (50, Reason::Full { len: 50 }));
    for &key in &keys {
        assert_eq!(controller.state(key), &State::Granted);
        controller.suspend(key, Duration::ZERO, now);
    }
    let now = now + ms(10);
    controller.resume(keys[0], now);
    controller.finish(keys[0], ms(10), now);
    keys[1..].iter().for_each(|&key| controller.end(key, now));
    let (keys, refused) = fill(&mut controller, Offer::arrived(now), now);
    assert!(keys.len() < 10 && matches!(refused.reason, Reason::Delay { .. }), "{} and {refused}", keys.len());
}

#[test]
fn a_new_kind_is_taken_to_be_as_cheap_as_all_others() {
    let mut controller = Controller::new(Config { in_service_max: 50, ..Config::default() }, 1);
    let now = Instant::now();
    let (cheap, dear) = (Offer::arrived(now).kind(1), Offer::arrived(now).kind(2));
    let key = controller.offer(cheap, now).unwrap();
    controller.finish(key, Duration::from_micros(10), now);
    let (keys, refused) = fill(&mut controller, dear, now);
    assert_eq!((keys.len(), refused.reason), (50, Reason::Full { len: 50 }));
}

#[test]
fn the_largest_numbers_bound_nothing() {
    let config = Config { queue_len_max: usize::MAX, in_service_max: usize::MAX, ..Config::default() };
    let mut controller = Controller::new(config, usize::MAX);
    let now = Instant::now();
    for n in 0..100 {
        let key = controller.offer(Offer::arrived(now).client(n).kind(u64::MAX), now).expect("there is room");
        controller.finish(key, ms(n), now + ms(n));
    }
    assert_eq!(controller.stats(now).finished, 100);
}
