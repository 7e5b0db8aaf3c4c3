//! The wheel beside a sorted map that does the same slowly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use super::{HORIZON, Key, Wheel};

/// Writes its number to the log when woken.
struct Named {
    number: u64,
    log: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap().push(self.number);
    }
}

struct Pair {
    wheel: Wheel,
    /// Deadline and order of insertion, to the key in the wheel.
    model: BTreeMap<(u64, u64), Key>,
    log: Arc<Mutex<Vec<u64>>>,
    next: u64,
    now: u64,
}

impl Pair {
    fn new() -> Self {
        Pair { wheel: Wheel::new(), model: BTreeMap::new(), log: Arc::default(), next: 0, now: 0 }
    }

    fn insert(&mut self, deadline: u64) {
        let waker = Waker::from(Arc::new(Named { number: self.next, log: self.log.clone() }));
        let key = self.wheel.insert(deadline, waker);
        self.model.insert((deadline.max(self.now), self.next), key);
        self.next += 1;
    }

    fn remove(&mut self, choice: usize) {
        if let Some((&at, &key)) = self.model.iter().nth(choice % self.model.len().max(1)) {
            self.model.remove(&at);
            assert!(self.wheel.remove(key).is_some());
            assert!(self.wheel.remove(key).is_none(), "a key names one timer");
        }
    }

    fn advance(&mut self, now: u64, budget: usize) {
        self.now = now;
        let mut fired = Vec::new();
        while self.wheel.advance(now, budget, &mut fired) {}
        fired.into_iter().for_each(Waker::wake);
        let mut fired = std::mem::take(&mut *self.log.lock().unwrap());
        let later = self.model.split_off(&(now + 1, 0));
        let due = std::mem::replace(&mut self.model, later);
        let mut expected: Vec<u64> = due.keys().map(|&(_, number)| number).collect();
        let deadlines: BTreeMap<u64, u64> = due.keys().map(|&(at, number)| (number, at)).collect();
        assert!(fired.is_sorted_by_key(|number| deadlines[number]), "in order of their deadlines");
        fired.sort_unstable();
        expected.sort_unstable();
        assert_eq!(fired, expected, "at tick {now}");
        assert_eq!(self.wheel.len(), self.model.len());
        let next = self.wheel.next_tick();
        let earliest = self.model.keys().next().map(|&(at, _)| at);
        assert!(next.is_some() == earliest.is_some());
        assert!(next <= earliest && next.is_none_or(|at| at > now));
    }
}

#[test]
fn fires_what_a_sorted_map_fires() {
    static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let random = || {
        // Relaxed: any number will do.
        let mut x = SEED.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        SEED.store(x, Ordering::Relaxed);
        x
    };
    for round in 0..200 {
        let mut pair = Pair::new();
        // Begin close to where the ticks of 32 bits wrap.
        let start = if round % 2 == 0 { 0 } else { u64::from(u32::MAX) - 500 };
        pair.advance(start, 1);
        for _ in 0..300 {
            let span = 1 << (random() % 29);
            match random() % 4 {
                0 | 1 => pair.insert(pair.now + random() % span),
                2 => pair.remove(random() as usize % 64),
                _ => pair.advance(pair.now + random() % span, 1 + random() as usize % 5),
            }
        }
        pair.advance(pair.now + HORIZON, 7);
        assert_eq!(pair.wheel.len(), 0);
    }
}

#[test]
fn a_deadline_past_the_horizon_is_clamped() {
    let mut wheel = Wheel::new();
    wheel.insert(u64::MAX / 2, Waker::noop().clone());
    let mut fired = Vec::new();
    assert!(!wheel.advance(HORIZON - 1, 100, &mut fired));
    assert!(fired.is_empty());
    assert!(!wheel.advance(HORIZON, 100, &mut fired));
    assert_eq!(fired.len(), 1);
}

#[test]
fn a_large_bucket_is_worked_off_in_pieces() {
    let mut wheel = Wheel::new();
    for _ in 0..1000 {
        wheel.insert(70, Waker::noop().clone());
    }
    let mut fired = Vec::new();
    let mut rounds = 1;
    while wheel.advance(80, 100, &mut fired) {
        rounds += 1;
    }
    assert_eq!(fired.len(), 1000);
    assert_eq!(rounds, 21, "a thousand move down, a thousand fire");
    assert_eq!(wheel.drain().len(), 0);
}
