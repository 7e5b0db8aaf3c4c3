//! A policy that knows the program's resources: it bounds the tasks inside a stage where each needs
//! a buffer, the resource-aware scheduling that the PLDI 2007 paper wishes for.
//!
//! ```text
//! cargo run --example policy_stage
//! ```

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Mutex};

use dapple::sync::Notify;
use dapple::{Builder, Color, Policy, Runnable, RunnableKey, yield_now};

fn main() -> io::Result<()> {
    let (without, bound) = (run(usize::MAX, |_| dapple::builder())?, run(4, |_| dapple::builder())?);
    let aware =
        run(4, |stage| dapple::builder().policy(move |_worker| Box::new(Aware(stage.clone(), BTreeSet::new()))))?;
    println!("inside at most, without a bound: {} of {}", without.peak, without.passed);
    println!("inside at most, with this policy: {} of {}", aware.peak, aware.passed);
    println!("polled in vain with this policy: {}", aware.in_vain);
    println!("polled in vain with the bound alone: {}", bound.in_vain);
    Ok(())
}

/// The program's facts, shared with the policy; and the tasks that wait when the policy cannot
/// prevent an entry (see `pick`).
struct Stage(Mutex<State>, Notify);

#[derive(Clone, Default)]
struct State {
    room: usize,
    inside: usize,
    peak: usize,
    passed: usize,
    in_vain: usize,
    at_door: HashSet<u64>,
}

/// Runs tasks inside the stage first, because they return a buffer; tasks at the entry only if
/// there is room. The oldest of each kind.
struct Aware(Arc<Stage>, BTreeSet<(bool, RunnableKey)>);

impl Policy for Aware {
    fn queued(&mut self, color: &Runnable) {
        let is_at_door = self.0.0.lock().unwrap().at_door.contains(&color.color_id);
        self.1.insert((is_at_door, color.key));
    }

    fn removed(&mut self, key: RunnableKey) {
        self.1.retain(|&(_, waiting)| waiting != key);
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        let &(is_at_door, key) = self.1.first()?;
        // "None" lets the scheduler take the oldest, as it also does from time to time (C7): so the
        // entry itself also checks.
        let picked = !is_at_door || !self.0.0.lock().unwrap().is_full();
        (picked && self.1.remove(&(is_at_door, key))).then_some(key)
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.inside >= self.room
    }

    fn enter(&mut self) -> bool {
        let is_full = self.is_full();
        self.inside += usize::from(!is_full);
        self.in_vain += usize::from(is_full);
        self.peak = self.peak.max(self.inside);
        !is_full && self.at_door.remove(&Color::current().id())
    }
}

async fn pass(stage: Arc<Stage>) {
    stage.0.lock().unwrap().at_door.insert(Color::current().id());
    yield_now().await; // from here on, the policy decides when this continues
    while !stage.0.lock().unwrap().enter() {
        stage.1.notified().await;
    }
    for _work_with_a_buffer in 0..3 {
        yield_now().await;
    }
    let mut state = stage.0.lock().unwrap();
    (state.inside, state.passed) = (state.inside - 1, state.passed + 1);
    stage.1.notify_one();
}

fn run(room: usize, builder: impl FnOnce(Arc<Stage>) -> Builder) -> io::Result<State> {
    let stage = Arc::new(Stage(Mutex::new(State { room, ..State::default() }), Notify::new()));
    let runtime = builder(stage.clone()).workers(2).build()?;
    let tasks: Vec<_> = (0..200).map(|_| runtime.spawn(pass(stage.clone()))).collect();
    for task in tasks {
        runtime.block_on(task).expect("no task panics");
    }
    Ok(stage.0.lock().unwrap().clone())
}
