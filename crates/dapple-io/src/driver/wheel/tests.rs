//! The wheel, compared with a sorted map that does the same slowly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use dapple_sched::foreign::KeptWaker;

use super::{HORIZON, Wheel};

/// Nanoseconds at which a tick begins, without the bits that the wheel does not keep.
fn at(tick: u64) -> u64 {
    (tick << 19) - 256
}

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
    model: BTreeMap<(u64, u64), u32>,
    /// Timers that have fired and have yet to be removed.
    fired: BTreeMap<u64, u32>,
    log: Arc<Mutex<Vec<u64>>>,
    next: u64,
    now: u64,
}

impl Pair {
    fn new(now: u64) -> Self {
        let (model, fired) = (BTreeMap::new(), BTreeMap::new());
        Pair { wheel: Wheel::new(now), model, fired, log: Arc::default(), next: 0, now }
    }

    fn insert(&mut self, deadline: u64) {
        let waker = Waker::from(Arc::new(Named { number: self.next, log: self.log.clone() }));
        let key = self.wheel.insert(at(deadline), waker.into()).unwrap();
        self.model.insert((deadline.max(self.now), self.next), key);
        self.next += 1;
    }

    fn remove(&mut self, choice: usize) {
        if let Some((&old, &key)) = self.model.iter().nth(choice % self.model.len().max(1)) {
            self.model.remove(&old);
            assert!(self.wheel.is_armed(key));
            drop(self.wheel.remove(key));
        }
    }

    fn reset(&mut self, choice: usize, deadline: u64) {
        if let Some((&old, &key)) = self.model.iter().nth(choice % self.model.len().max(1)) {
            self.model.remove(&old);
            self.wheel.reset(key, at(deadline));
            self.model.insert((deadline.max(self.now), old.1), key);
        }
    }

    /// Removes timers that have fired.
    fn sweep(&mut self) {
        for (_, key) in std::mem::take(&mut self.fired) {
            assert!(!self.wheel.is_armed(key));
            drop(self.wheel.remove(key));
        }
    }

    fn advance(&mut self, now: u64, budget: usize) {
        self.now = now;
        let mut fired = Vec::new();
        while self.wheel.advance(now, budget, &mut fired) == 0 {}
        fired.into_iter().for_each(KeptWaker::wake);
        let mut fired = std::mem::take(&mut *self.log.lock().unwrap());
        let later = self.model.split_off(&(now + 1, 0));
        let due = std::mem::replace(&mut self.model, later);
        let mut expected: Vec<u64> = due.keys().map(|&(_, number)| number).collect();
        self.fired.extend(due.iter().map(|(&(_, number), &key)| (number, key)));
        let deadlines: BTreeMap<u64, u64> = due.keys().map(|&(at, number)| (number, at)).collect();
        assert!(fired.is_sorted_by_key(|number| deadlines[number]), "in order of their deadlines");
        fired.sort_unstable();
        expected.sort_unstable();
        assert_eq!(fired, expected, "at tick {now}");
        assert_eq!(self.wheel.armed, self.model.len());
        assert_eq!(self.wheel.len(), self.model.len() + self.fired.len());
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
    for _ in 0..200 {
        let mut pair = Pair::new(1 + random() % (1 << 43));
        for _ in 0..300 {
            let span = 1 << (random() % 29);
            match random() % 6 {
                0 | 1 => pair.insert(pair.now + random() % span),
                2 => pair.remove(random() as usize % 64),
                3 => pair.reset(random() as usize % 64, pair.now + random() % span),
                4 => pair.sweep(),
                _ => pair.advance(pair.now + random() % span, 1 + random() as usize % 5),
            }
        }
        pair.advance(pair.now + HORIZON, 7);
        pair.sweep();
        assert_eq!(pair.wheel.len(), 0);
    }
}

#[test]
fn a_deadline_past_the_horizon_fires_when_it_comes() {
    let mut wheel = Wheel::new(7);
    let deadline = 5 * HORIZON + 12345;
    wheel.insert(at(deadline), Waker::noop().into());
    let mut fired = Vec::new();
    while let Some(next) = wheel.next_tick() {
        assert!(next <= deadline);
        assert!(fired.is_empty());
        wheel.advance(next, 100, &mut fired);
    }
    assert_eq!(fired.len(), 1);
    assert!(wheel.elapsed >= deadline);
}

#[test]
fn a_large_bucket_is_worked_off_in_pieces() {
    let mut wheel = Wheel::new(0);
    for _ in 0..1000 {
        wheel.insert(at(70), Waker::noop().into());
    }
    let mut fired = Vec::new();
    let mut rounds = 1;
    while wheel.advance(80, 100, &mut fired) == 0 {
        rounds += 1;
    }
    assert_eq!(fired.len(), 1000);
    assert_eq!(rounds, 21, "a thousand move down, a thousand fire");
    assert_eq!(wheel.drain().len(), 0);
}

#[test]
fn places_are_used_again_in_the_order_of_memory() {
    let mut wheel = Wheel::new(0);
    let count = 20_000_u64;
    let insert = |wheel: &mut Wheel, i: u64| wheel.insert(at(1 + i), Waker::noop().into()).unwrap();
    let mut keys: Vec<u32> = (0..count).map(|i| insert(&mut wheel, i)).collect();
    for i in 0..keys.len() {
        let other = i.wrapping_mul(7919) % keys.len();
        keys.swap(i, other);
    }
    keys.into_iter().for_each(|key| drop(wheel.remove(key)));
    assert_eq!(wheel.len(), 0);
    let keys: Vec<u32> = (0..count).map(|i| insert(&mut wheel, i)).collect();
    let changes = keys.windows(2).filter(|pair| pair[0] / 512 != pair[1] / 512).count();
    assert!(changes < 2 * keys.len() / 512, "chunk after chunk, not here and there: {changes}");
    assert!(keys.iter().all(|&key| u64::from(key) < count + 1024), "freed places come first");
}

#[test]
fn a_rewired_timer_wakes_the_new_waker() {
    let mut wheel = Wheel::new(0);
    let log = Arc::new(Mutex::new(Vec::new()));
    let waker = |number| Waker::from(Arc::new(Named { number, log: log.clone() }));
    let key = wheel.insert(at(3), waker(1).into()).unwrap();
    drop(wheel.rewire(key, waker(2).into()));
    let mut fired = Vec::new();
    wheel.advance(3, 10, &mut fired);
    fired.into_iter().for_each(KeptWaker::wake);
    assert_eq!(*log.lock().unwrap(), [2]);
    drop(wheel.rewire(key, waker(3).into()));
    assert!(!wheel.is_armed(key), "a fired timer is not armed by that");
    drop(wheel.remove(key));
    drop(wheel);
    assert_eq!(Arc::strong_count(&log), 1, "no waker is left over");
}
