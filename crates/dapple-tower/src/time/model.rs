//! Time in the models of `tests/shuttle`: it passes when a model says so, and timers due then fire
//! on that thread.
//!
//! Compiled only with `--cfg dapple_shuttle`. All threads of a model are one thread of the process,
//! so the timers are in a thread-local of std: arming one is one step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Waker;
use std::time::{Duration, Instant};

use dapple_sched::environment::start;
use dapple_sched::foreign::KeptWaker;

/// A deadline, and a number that distinguishes equal ones.
pub(super) type Key = (Instant, u64);

/// For systems that cannot start threads; models always can.
pub(super) struct NoThread;

#[derive(Default)]
struct Timers {
    passed: Duration,
    waiting: BTreeMap<Key, KeptWaker>,
    next_number: u64,
}

/// Forgets the state of an earlier model. Call it first in each.
pub fn begin() {
    let before = TIMERS.with(RefCell::take);
    drop(before);
}

/// The time passed since [`begin`].
pub fn passed() -> Duration {
    TIMERS.with_borrow(|timers| timers.passed)
}

/// Lets time pass without firing timers: as a handler does that works this long.
pub fn spend(duration: Duration) {
    TIMERS.with_borrow_mut(|timers| timers.passed += duration);
}

/// Lets time pass until the next timer is due, and fires all due ones; false if none waits.
pub fn pass() -> bool {
    let due = TIMERS.with_borrow_mut(|timers| {
        let first = timers.waiting.first_key_value()?.0.0;
        timers.passed = timers.passed.max(first.saturating_duration_since(start()));
        let later = timers.waiting.split_off(&(first, u64::MAX));
        Some(std::mem::replace(&mut timers.waiting, later))
    });
    let is_any = due.is_some();
    due.into_iter().flat_map(BTreeMap::into_values).for_each(KeptWaker::wake);
    is_any
}

/// The current time in the model.
pub fn now() -> Instant {
    start() + passed()
}

pub(super) fn arm(deadline: Instant, waker: Waker) -> Result<Key, NoThread> {
    TIMERS.with_borrow_mut(|timers| {
        let key = (deadline, timers.next_number);
        timers.next_number += 1;
        timers.waiting.insert(key, waker.into());
        Ok(key)
    })
}

pub(super) fn rewire(key: Key, waker: &Waker) -> bool {
    let new = KeptWaker::from(waker);
    let old = TIMERS.with_borrow_mut(|timers| timers.waiting.get_mut(&key).map(|old| std::mem::replace(old, new)));
    old.is_some()
}

pub(super) fn disarm(key: Key) {
    let waker = TIMERS.with_borrow_mut(|timers| timers.waiting.remove(&key));
    drop(waker);
}

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::default();
}
