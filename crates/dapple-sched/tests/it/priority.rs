//! Priorities as the thesis has them, section 3.4: Figure 3-4, by a clock that the test drives.
//!
//! Seen to catch: a pick of the lowest priority instead of the highest.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, Condvar, Mutex};

use dapple_sched::{Color, Handle, Priority};

use crate::support::{Gate, LONG, runtime};

/// Time in units: each callback takes one.
#[derive(Default)]
struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    now: usize,
    /// The callbacks that run in this unit.
    running: BTreeSet<u32>,
}

impl Clock {
    /// A callback's work.
    fn work(&self, callback: u32) {
        let mut state = self.state.lock().unwrap();
        let until = state.now + 1;
        state.running.insert(callback);
        self.changed.notify_all();
        let wait = self.changed.wait_timeout_while(state, LONG, |state| state.now < until).unwrap();
        assert!(!wait.1.timed_out(), "time stands still");
    }

    /// Lets a unit pass in which this many callbacks can run; returns them.
    fn pass(&self, count: usize) -> BTreeSet<u32> {
        let state = self.state.lock().unwrap();
        let wait = self.changed.wait_timeout_while(state, LONG, |state| state.running.len() < count).unwrap();
        let (mut state, timeout) = wait;
        assert!(!timeout.timed_out(), "a worker is idle beside {:?}", state.running);
        state.now += 1;
        self.changed.notify_all();
        std::mem::take(&mut state.running)
    }
}

/// The schedule of Figure 3-4: callbacks 1 and 2 have colors 1 and 2, callbacks 3 and 4 are
/// zero-colored.
fn schedule(zero: Priority) -> Vec<Vec<u32>> {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let clock = Arc::new(Clock::default());
    // Both workers wait until the queue is loaded, in a callback at the default color's home.
    let (both, loaded) = (Arc::new(Barrier::new(2)), Gate::default());
    for _ in 0..2 {
        let (both, loaded, clock) = (both.clone(), loaded.clone(), clock.clone());
        Color::new().post(move || {
            both.wait();
            if Handle::current().worker_index() != Some(0) {
                return loaded.wait();
            }
            let work = |callback| {
                let (clock, loaded) = (clock.clone(), loaded.clone());
                move || {
                    // The other worker searches for work once this one has made its choice.
                    loaded.open();
                    clock.work(callback);
                }
            };
            Color::named(1).post(work(1));
            Color::named(2).post(work(2));
            Color::DEFAULT.post_with(zero, work(3));
            Color::DEFAULT.post_with(zero, work(4));
        });
    }
    let color_of = |callback: &u32| if *callback > 2 { 0 } else { *callback };
    let mut left: BTreeSet<u32> = (1..=4).collect();
    let mut schedule = Vec::new();
    while !left.is_empty() {
        // No worker is idle while there is another color.
        let colors: BTreeSet<u32> = left.iter().map(color_of).collect();
        let ran = clock.pass(colors.len().min(2));
        left.retain(|callback| !ran.contains(callback));
        schedule.push(ran.into_iter().collect());
    }
    schedule
}

#[test]
fn figure_3_4_takes_three_units_without_priorities() {
    for _ in 0..5 {
        assert_eq!(schedule(Priority::NORMAL), [vec![1, 2], vec![3], vec![4]]);
    }
}

#[test]
fn figure_3_4_takes_two_units_where_zero_colored_callbacks_go_first() {
    for _ in 0..5 {
        assert_eq!(schedule(Priority::new(1)), [vec![1, 3], vec![2, 4]]);
    }
}
