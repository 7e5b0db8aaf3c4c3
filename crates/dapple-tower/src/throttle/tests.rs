//! The order of tickets, with a clock that the tests move.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::classes::{Class, Classes};
use super::discipline::{Discipline, Next, Ticket};
use super::fair::Fair;
use super::plain::Plain;
use super::rate::Rate;

const SECOND: Duration = Duration::from_secs(1);

/// Releases due tickets until `end`, and returns which went when.
fn run(discipline: &mut dyn Discipline<u8>, start: Instant, end: Instant) -> Vec<(Ticket, Duration)> {
    let (mut now, mut gone) = (start, Vec::new());
    loop {
        match discipline.next(now) {
            Next::Goes(ticket, _) => gone.push((ticket, now - start)),
            Next::At(at) if at <= end => {
                assert!(at > now);
                now = at;
            }
            Next::At(_) | Next::Nobody => return gone,
        }
    }
}

/// Adds this many tickets of a key, with numbers that tell the key.
fn push(discipline: &mut dyn Discipline<u8>, key: u8, count: u64, cost: u64) {
    for n in 0..count {
        discipline.push(u64::from(key) * 100_000 + n, &key, cost, Instant::now()).unwrap();
    }
}

fn by_key(gone: &[(Ticket, Duration)]) -> HashMap<u8, u64> {
    let mut counts = HashMap::new();
    gone.iter().for_each(|(ticket, _)| *counts.entry((ticket / 100_000) as u8).or_default() += 1);
    counts
}

#[test]
fn in_one_line_the_first_goes_first_at_the_rate() {
    let start = Instant::now();
    let mut plain = Plain::new(Rate::per_second(10), 1, start);
    push(&mut plain, 1, 3, 1);
    push(&mut plain, 0, 3, 2);
    let gone = run(&mut plain, start, start + SECOND);
    assert_eq!(gone.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [100_000, 100_001, 100_002, 0, 1, 2]);
    // A ticket of cost 2 goes when the bucket is full with one, and leaves a debt of one.
    let times: Vec<u128> = gone.iter().map(|(_, at)| at.as_millis()).collect();
    assert_eq!(times, [0, 100, 200, 300, 500, 700]);
}

#[test]
fn a_key_with_a_thousand_in_line_goes_no_sooner_than_one_with_a_few() {
    let start = Instant::now();
    let mut fair = Fair::new(Rate::per_second(100), 1, start);
    push(&mut fair, 1, 1_000, 1);
    push(&mut fair, 2, 10, 1);
    push(&mut fair, 3, 10, 1);
    let gone = run(&mut fair, start, start + SECOND * 3 / 10);
    assert_eq!(gone.len(), 31);
    let counts = by_key(&gone);
    assert_eq!((counts[&2], counts[&3]), (10, 10));
}

#[test]
fn shares_are_of_cost_and_not_of_number() {
    let start = Instant::now();
    let mut fair = Fair::new(Rate::per_second(1_000), 1, start);
    push(&mut fair, 1, 1_000, 50);
    push(&mut fair, 2, 1_000, 5);
    let counts = by_key(&run(&mut fair, start, start + SECOND));
    assert!((9..=11).contains(&counts[&1]) && (95..=105).contains(&counts[&2]), "{counts:?}");
}

#[test]
fn a_huge_cost_takes_no_more_steps_than_a_small_one() {
    let start = Instant::now();
    let mut fair = Fair::new(Rate::new(u64::MAX, SECOND), 1, start);
    push(&mut fair, 1, 2, u64::MAX / 2);
    push(&mut fair, 2, 2, u64::MAX / 4);
    assert_eq!(run(&mut fair, start, start + 10 * SECOND).len(), 4);
}

fn classes(start: Instant) -> Classes<u8> {
    let classes = [Class::new(0, 5), Class::new(1, 3), Class::new(2, 2).bounded(), Class::new(3, 0)];
    Classes::new(Rate::per_second(100), 10, classes, start)
}

#[test]
fn each_class_gets_its_share_while_all_wait() {
    let start = Instant::now();
    let mut classes = classes(start);
    (0..4).for_each(|key| push(&mut classes, key, 1_000, 1));
    let counts = by_key(&run(&mut classes, start, start + 10 * SECOND));
    assert!(
        counts[&0].abs_diff(505) <= 2 && counts[&1].abs_diff(303) <= 2 && counts[&2].abs_diff(202) <= 2,
        "{counts:?}"
    );
    assert!(counts.get(&3).is_none_or(|count| *count <= 5), "{counts:?}");
}

#[test]
fn what_a_class_leaves_is_lent_and_comes_back_at_once() {
    let start = Instant::now();
    let mut classes = classes(start);
    push(&mut classes, 1, 1_000, 1);
    push(&mut classes, 2, 1_000, 1);
    push(&mut classes, 3, 1_000, 1);
    let counts = by_key(&run(&mut classes, start, start + 5 * SECOND));
    assert!(counts[&2].abs_diff(102) <= 2, "bounded: {counts:?}");
    assert!(counts[&1] > 250 && counts[&3] > 50, "{counts:?}");
    assert_eq!(counts.values().sum::<u64>(), 510);
    // Now the owner of half of it wants it.
    let later = start + 5 * SECOND;
    push(&mut classes, 0, 1_000, 1);
    let counts = by_key(&run(&mut classes, later, later + SECOND));
    assert!(counts[&0] >= 50, "{counts:?}");
}

#[test]
fn a_class_without_a_share_or_a_name_is_refused() {
    let start = Instant::now();
    let mut classes = Classes::new(Rate::per_second(1), 1, [Class::new(0, 0).bounded()], start);
    assert!(classes.push(0, &0, 1, start).is_err());
    assert!(classes.push(0, &9, 1, start).is_err());
    assert_eq!(classes.next(start), Next::Nobody);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u8, u64),
    Cancel(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..4, 1_u64..20).prop_map(|(key, cost)| Step::Push(key, cost)),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => (0_u64..500).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..150)
}

fn make(kind: u8, start: Instant) -> Box<dyn Discipline<u8>> {
    let rate = Rate::per_second(50);
    match kind {
        0 => Box::new(Plain::new(rate, 10, start)),
        1 => Box::new(Fair::new(rate, 10, start)),
        _ => Box::new(Classes::new(rate, 10, (0..4).map(|key| Class::new(key, u32::from(key))), start)),
    }
}

proptest! {
    /// Every ticket goes once or is removed, each key in order, no faster than the rate, and none
    /// waits while it could go.
    #[test]
    fn no_ticket_is_lost_and_the_rate_is_kept(steps in steps(), kind in 0_u8..3) {
        let start = Instant::now();
        let mut discipline = make(kind, start);
        let mut now = start;
        let mut waiting: Vec<(Ticket, u8, u64)> = Vec::new();
        let (mut next_ticket, mut spent, mut largest) = (0, 0, 0);
        let mut last_of = HashMap::new();
        let end = steps.len();
        for (index, step) in steps.into_iter().chain(std::iter::once(Step::Wait(1_000_000))).enumerate() {
            match step {
                Step::Push(key, cost) => {
                    discipline.push(next_ticket, &key, cost, now).unwrap();
                    waiting.push((next_ticket, key, cost));
                    next_ticket += 1;
                }
                Step::Cancel(at) if !waiting.is_empty() => {
                    let (ticket, key, _) = waiting.remove(at % waiting.len());
                    discipline.cancel(ticket, &key);
                }
                Step::Cancel(_) => {}
                Step::Wait(ms) => {
                    let until = now + Duration::from_millis(ms);
                    loop {
                        match discipline.next(now) {
                            Next::Goes(ticket, _) => {
                                let at = waiting.iter().position(|(waiting, ..)| *waiting == ticket);
                                prop_assert!(at.is_some(), "a ticket went that did not wait");
                                let (_, key, cost) = waiting.remove(at.unwrap());
                                prop_assert!(last_of.insert(key, ticket).is_none_or(|before| before < ticket));
                                spent += cost;
                                largest = largest.max(cost);
                                let rated = (now - start).as_millis() as u64 * 50 / 1_000;
                                prop_assert!(spent <= rated + 10 + largest + 1);
                            }
                            Next::At(at) => {
                                prop_assert!(at > now && !waiting.is_empty());
                                if at > until {
                                    break;
                                }
                                now = at;
                            }
                            Next::Nobody => {
                                prop_assert!(waiting.is_empty());
                                break;
                            }
                        }
                    }
                    now = until;
                }
            }
            for key in 0..4 {
                let expected = waiting.iter().filter(|(_, other, _)| kind == 0 || *other == key).count();
                prop_assert_eq!(discipline.len_of(&key), expected);
            }
            if index == end {
                prop_assert!(waiting.is_empty(), "in a thousand seconds all were released");
            }
        }
    }

    #[test]
    fn the_longest_line_is_cut(steps in steps(), kind in 0_u8..3) {
        let start = Instant::now();
        let mut discipline = make(kind, start);
        let mut count = 0;
        for step in steps {
            if let Step::Push(key, cost) = step {
                discipline.push(count, &key, cost, start).unwrap();
                count += 1;
            }
        }
        while count > 0 {
            let before = discipline.longest_len();
            prop_assert_eq!(before, if kind == 0 { count as usize } else { (0..4).map(|key| discipline.len_of(&key)).max().unwrap() });
            prop_assert!(discipline.cut_longest().is_some());
            prop_assert!(discipline.longest_len() <= before);
            count -= 1;
        }
        prop_assert_eq!(discipline.cut_longest(), None);
        prop_assert_eq!(discipline.next(start), Next::Nobody);
    }
}
