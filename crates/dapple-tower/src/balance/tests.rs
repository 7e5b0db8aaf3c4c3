//! The choice alone, with a clock that the tests move.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::config::{Config, Load, Outcome, Probe};
use super::replicas::{Choice, Replicas};
use super::stats::ReplicaState;
use crate::Backoff;
use crate::random::Random;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn config() -> Config {
    Config { backoff: Backoff::new(SECOND, 8 * SECOND).jitter(0.0), ..Config::default() }
}

fn replicas(count: u32, config: Config) -> (Replicas<u32, ()>, Instant) {
    let mut replicas = Replicas::new(config, Random::new(3));
    let now = Instant::now();
    (0..count).for_each(|key| assert!(replicas.insert(key, (), now).is_none()));
    (replicas, now)
}

fn key(replicas: &Replicas<u32, ()>, choice: Choice) -> u32 {
    *replicas.value(choice.id).unwrap().0
}

/// One request that ends at once.
fn ask(replicas: &mut Replicas<u32, ()>, outcome: Outcome, now: Instant) -> Option<u32> {
    let choice = replicas.pick(now, |_| true)?;
    let key = key(replicas, choice);
    replicas.report(choice, outcome, MS, now);
    replicas.end(choice.id);
    Some(key)
}

#[test]
fn the_busiest_is_never_picked_while_there_are_others() {
    let (mut replicas, now) = replicas(5, config());
    let id = replicas.id(&2).unwrap();
    for _ in 0..50 {
        assert!(replicas.begin(Choice { id, is_trial: false }, now));
    }
    for _ in 0..100 {
        let choice = replicas.pick(now, |_| true).unwrap();
        assert_ne!(key(&replicas, choice), 2);
    }
}

#[test]
fn two_choices_keep_queues_even() {
    let (mut replicas, now) = replicas(10, config());
    for _ in 0..1_000 {
        replicas.pick(now, |_| true).unwrap();
    }
    let stats = replicas.stats(now);
    let queues: Vec<usize> = stats.iter().map(|replica| replica.in_flight).collect();
    assert!(queues.iter().all(|len| (95..=105).contains(len)), "{queues:?}");
}

#[test]
fn by_latency_a_slow_one_gets_less_and_an_unmeasured_one_is_not_flooded() {
    let (mut replicas, now) = replicas(2, Config { load: Load::Latency, ..config() });
    for _ in 0..20 {
        let choice = replicas.pick(now, |_| true).unwrap();
        let latency = if key(&replicas, choice) == 0 { 90 * MS } else { 10 * MS };
        replicas.report(choice, Outcome::Success, latency, now);
        replicas.end(choice.id);
    }
    assert_eq!(replicas.stats(now)[0].latency.unwrap(), 90 * MS);
    let choices: Vec<Choice> = (0..100).map(|_| replicas.pick(now, |_| true).unwrap()).collect();
    let slow = choices.iter().filter(|choice| key(&replicas, **choice) == 0).count();
    assert!((9..=11).contains(&slow), "{slow}");
    choices.iter().for_each(|choice| replicas.end(choice.id));
    replicas.insert(2, (), now);
    for _ in 0..30 {
        replicas.pick(now, |_| true).unwrap();
    }
    let new = replicas.stats(now)[2].in_flight;
    assert!((5..=15).contains(&new), "{new}");
}

#[test]
fn the_average_follows_a_rise_at_once_and_a_fall_slowly() {
    let (mut replicas, start) = replicas(1, config());
    let mut measure = |latency: Duration, now: Instant| {
        let choice = replicas.pick(now, |_| true).unwrap();
        replicas.report(choice, Outcome::Success, latency, now);
        replicas.end(choice.id);
        replicas.stats(now)[0].latency.unwrap()
    };
    assert_eq!(measure(10 * MS, start), 10 * MS);
    assert_eq!(measure(100 * MS, start + SECOND), 100 * MS);
    let later = measure(10 * MS, start + 2 * SECOND);
    assert!(later > 80 * MS && later < 100 * MS, "{later:?}");
    let much_later = measure(10 * MS, start + 100 * SECOND);
    assert!(much_later < 11 * MS, "{much_later:?}");
}

#[test]
fn failures_in_a_row_put_a_replica_out_and_its_trial_brings_it_back() {
    let (mut replicas, start) = replicas(1, config());
    for _ in 0..2 {
        ask(&mut replicas, Outcome::Failure, start);
    }
    ask(&mut replicas, Outcome::Success, start);
    for _ in 0..3 {
        assert_eq!(replicas.serving_len(), 1);
        ask(&mut replicas, Outcome::Failure, start);
    }
    assert_eq!(replicas.serving_len(), 0);
    assert_eq!(replicas.stats(start)[0].state, ReplicaState::Out { rest: SECOND });
    assert_eq!(replicas.next_trial(|_| true), Some(start + SECOND));
    assert_eq!(ask(&mut replicas, Outcome::Success, start + 999 * MS), None);
    // One request at a time is its trial.
    let trial = replicas.pick(start + SECOND, |_| true).unwrap();
    assert!(trial.is_trial);
    assert_eq!(replicas.pick(start + SECOND, |_| true), None);
    assert!(replicas.report(trial, Outcome::Success, MS, start + SECOND));
    assert_eq!(replicas.stats(start)[0].state, ReplicaState::In);
}

#[test]
fn the_back_off_grows_while_trials_fail_and_while_it_flaps() {
    let (mut replicas, start) = replicas(1, config());
    ask(&mut replicas, Outcome::Down, start);
    let mut now = start;
    for seconds in [1, 2, 4, 8, 8] {
        assert_eq!(replicas.next_trial(|_| true), Some(now + seconds * SECOND));
        now += seconds * SECOND;
        ask(&mut replicas, Outcome::Failure, now).unwrap();
    }
    now += 8 * SECOND;
    ask(&mut replicas, Outcome::Success, now).unwrap();
    ask(&mut replicas, Outcome::Down, now + SECOND).unwrap();
    assert_eq!(replicas.next_trial(|_| true), Some(now + 9 * SECOND), "healthy for a second only");
    now += 9 * SECOND;
    ask(&mut replicas, Outcome::Success, now).unwrap();
    ask(&mut replicas, Outcome::Success, now + 8 * SECOND).unwrap();
    ask(&mut replicas, Outcome::Down, now + 8 * SECOND).unwrap();
    assert_eq!(replicas.next_trial(|_| true), Some(now + 9 * SECOND), "healthy for as long as it was out");
}

#[test]
fn a_trial_that_is_given_up_is_open_to_the_next_and_one_that_hangs_too() {
    let (mut replicas, start) = replicas(1, config());
    ask(&mut replicas, Outcome::Down, start);
    let now = start + SECOND;
    assert!(ask(&mut replicas, Outcome::Canceled, now).is_some());
    let hangs = replicas.pick(now, |_| true).unwrap();
    assert_eq!(replicas.pick(now + 7 * SECOND, |_| true), None);
    let second = replicas.pick(now + 8 * SECOND, |_| true).unwrap();
    assert!(second.is_trial);
    assert!(replicas.report(hangs, Outcome::Success, MS, now + 8 * SECOND));
    assert!(!replicas.report(second, Outcome::Failure, MS, now + 8 * SECOND), "one failure of one in service");
    assert_eq!(replicas.serving_len(), 1);
}

#[test]
fn one_that_fails_is_not_where_all_requests_begin_that_others_then_get() {
    let (mut replicas, now) = replicas(2, Config { failures_max: 1_000, ..config() });
    let mut failed = 0;
    for _ in 0..200 {
        let first = replicas.pick(now, |_| true).unwrap();
        let fails = key(&replicas, first) == 0;
        replicas.report(first, if fails { Outcome::Failure } else { Outcome::Success }, MS, now);
        replicas.end(first.id);
        if fails {
            failed += 1;
            let retry = replicas.pick(now, |candidate| *candidate.key != 0).unwrap();
            assert_eq!(key(&replicas, retry), 1);
            replicas.report(retry, Outcome::Success, MS, now);
            replicas.end(retry.id);
        }
    }
    // Not none either: it must fail often enough in a row to be out.
    assert!((60..=140).contains(&failed), "{failed} of 200 began with the one that fails");
}

#[test]
fn a_refusal_is_no_failure_but_draws_fewer_requests() {
    let (mut replicas, now) = replicas(2, config());
    for _ in 0..10 {
        let choice = replicas.pick(now, |one| *one.key == 0).unwrap();
        replicas.report(choice, Outcome::Refused, MS, now);
        replicas.end(choice.id);
    }
    assert_eq!(replicas.serving_len(), 2);
    assert!((0..50).all(|_| ask(&mut replicas, Outcome::Success, now) == Some(1)));
    let later = now + 1_000 * SECOND;
    let mut seen = [0_usize; 2];
    (0..100)
        .for_each(|_| seen[replicas.pick(later, |_| true).map(|choice| key(&replicas, choice)).unwrap() as usize] += 1);
    assert!(seen[0].abs_diff(seen[1]) <= 2, "{seen:?}");
}

#[test]
fn one_that_has_refused_gets_its_share_again_before_long() {
    let (mut replicas, now) = replicas(2, config());
    let choice = replicas.pick(now, |one| *one.key == 0).unwrap();
    replicas.report(choice, Outcome::Refused, MS, now);
    replicas.end(choice.id);
    let later = now + 60 * SECOND;
    let keys: Vec<u32> = (0..100).map(|_| ask(&mut replicas, Outcome::Success, later).unwrap()).collect();
    assert_eq!(keys.iter().filter(|key| **key == 0).count(), 50, "{keys:?}");
}

#[test]
fn with_checks_no_request_is_risked() {
    let (mut replicas, start) = replicas(1, Config { probe: Probe::Check, ..config() });
    let id = replicas.id(&0).unwrap();
    ask(&mut replicas, Outcome::Down, start);
    assert_eq!(replicas.next_trial(|_| true), None);
    assert_eq!(ask(&mut replicas, Outcome::Success, start + 3_600 * SECOND), None);
    assert!(replicas.set_health(id, true, start));
    assert!(!replicas.set_health(id, true, start));
    assert_eq!(ask(&mut replicas, Outcome::Success, start), Some(0));
    assert!(replicas.set_health(id, false, start));
    assert_eq!(replicas.serving_len(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Remove(u32),
    Pick,
    Report(usize, Outcome),
    End(usize),
    Health(u32, bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    use Outcome::*;
    let outcome = proptest::sample::select(vec![Success, Failure, Down, Refused, Canceled]);
    prop_oneof![
        1 => (0_u32..6).prop_map(Step::Insert),
        1 => (0_u32..6).prop_map(Step::Remove),
        8 => Just(Step::Pick),
        6 => (any::<usize>(), outcome).prop_map(|(at, outcome)| Step::Report(at, outcome)),
        6 => any::<usize>().prop_map(Step::End),
        1 => (0_u32..6, any::<bool>()).prop_map(|(key, is_well)| Step::Health(key, is_well)),
        2 => (0_u64..3_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_counts_are_right_and_none_is_picked_that_is_out(
        steps in proptest::collection::vec(step(), 1..200),
        checks in any::<bool>(),
        by_latency in any::<bool>(),
    ) {
        let probe = if checks { Probe::Check } else { Probe::Trial };
        let load = if by_latency { Load::Latency } else { Load::Queue };
        let (mut replicas, mut now) = replicas(2, Config { probe, load, ..config() });
        let mut open: Vec<Choice> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key) => {
                    let had = replicas.id(&key).is_some();
                    prop_assert_eq!(replicas.insert(key, (), now).is_some(), had);
                }
                Step::Remove(key) => {
                    let had = replicas.id(&key).is_some();
                    prop_assert_eq!(replicas.remove(&key).is_some(), had);
                }
                Step::Pick => {
                    let states: HashMap<u32, ReplicaState> = replicas.stats(now).into_iter().map(|one| (one.key, one.state)).collect();
                    match replicas.pick(now, |_| true) {
                        Some(choice) => {
                            let state = states[&key(&replicas, choice)];
                            prop_assert_eq!(choice.is_trial, state != ReplicaState::In);
                            if let ReplicaState::Out { rest } = state {
                                prop_assert!(rest.is_zero() && probe == Probe::Trial);
                            }
                            open.push(choice);
                        }
                        None => prop_assert!(states.values().all(|state| *state != ReplicaState::In)),
                    }
                }
                Step::Report(at, outcome) if !open.is_empty() => {
                    replicas.report(open[at % open.len()], outcome, MS, now);
                }
                Step::End(at) if !open.is_empty() => replicas.end(open.swap_remove(at % open.len()).id),
                Step::Health(key, is_well) => {
                    if let Some(id) = replicas.id(&key) {
                        replicas.set_health(id, is_well, now);
                    }
                }
                Step::Wait(ms) => now += Duration::from_millis(ms),
                Step::Report(..) | Step::End(_) => {}
            }
            let stats = replicas.stats(now);
            let serving = stats.iter().filter(|replica| replica.state == ReplicaState::In).count();
            prop_assert_eq!(replicas.serving_len(), serving);
            for replica in &stats {
                let id = replicas.id(&replica.key).unwrap();
                prop_assert_eq!(replica.in_flight, open.iter().filter(|choice| choice.id == id).count());
            }
        }
        open.iter().for_each(|choice| replicas.end(choice.id));
        prop_assert!(replicas.stats(now).iter().all(|replica| replica.in_flight == 0));
    }
}
