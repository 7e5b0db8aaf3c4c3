//! Earliest deadline first: the program's own policy picks the next color.
//!
//! ```text
//! cargo run --example policy_deadline
//! ```
//!
//! Two hundred requests arrive at once, each with a deadline; together they can be met, but not in
//! the order of arrival. Time is counted in units of work, so that the figures do not depend on the
//! machine.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use dapple::{Color, Policy, Runnable, RunnableKey};

fn main() -> io::Result<()> {
    let deadlines = Arc::new(Deadlines::default());
    let by_default = serve(dapple::builder(), &deadlines)?;
    let shared = deadlines.clone();
    let by_deadline = serve(dapple::builder().policy(move |_| Box::new(Earliest::new(shared.clone()))), &deadlines)?;
    println!("answered in time by the default, oldest first: {by_default} of {REQUESTS}");
    println!("answered in time by the earliest deadline:     {by_deadline} of {REQUESTS}");
    Ok(())
}

/// The program's facts about its colors, by [`Color::id`].
type Deadlines = Mutex<HashMap<u64, u64>>;

/// Takes the waiting color with the earliest deadline; colors without one come last.
struct Earliest {
    deadlines: Arc<Deadlines>,
    waiting: BTreeSet<(u64, RunnableKey)>,
    deadline_of: HashMap<RunnableKey, u64>,
}

impl Earliest {
    fn new(deadlines: Arc<Deadlines>) -> Earliest {
        Earliest { deadlines, waiting: BTreeSet::new(), deadline_of: HashMap::new() }
    }
}

impl Policy for Earliest {
    fn queued(&mut self, color: &Runnable) {
        let deadline = self.deadlines.lock().unwrap().get(&color.color_id).copied().unwrap_or(u64::MAX);
        self.waiting.insert((deadline, color.key));
        self.deadline_of.insert(color.key, deadline);
    }

    fn removed(&mut self, key: RunnableKey) {
        if let Some(deadline) = self.deadline_of.remove(&key) {
            self.waiting.remove(&(deadline, key));
        }
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        // For equal deadlines the smaller key, which has waited longer.
        let (_, key) = self.waiting.pop_first()?;
        self.deadline_of.remove(&key);
        Some(key)
    }
}

/// Serves the requests on one worker, and returns how many were answered in time.
fn serve(builder: dapple::Builder, deadlines: &Arc<Deadlines>) -> io::Result<u64> {
    let runtime = builder.workers(1).build()?;
    let _entered = runtime.enter();
    let (clock, in_time) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (alive, all_answered) = mpsc::channel::<()>();
    let (counted, deadlines) = (in_time.clone(), deadlines.clone());
    // Posted by one callback, so that all of them wait before the first one runs.
    Color::new().post(move || {
        for n in 0..REQUESTS {
            let color = Color::new();
            // Deadlines in mixed order: the n-th request is the (n * 77)-th most urgent.
            let deadline = (n * 77 % REQUESTS + 1) * WORK * 5 / 4;
            deadlines.lock().unwrap().insert(color.id(), deadline);
            let (clock, in_time, alive) = (clock.clone(), counted.clone(), alive.clone());
            color.post(move || {
                let now = clock.fetch_add(WORK, Ordering::Relaxed) + WORK;
                in_time.fetch_add(u64::from(now <= deadline), Ordering::Relaxed);
                drop(alive);
            });
        }
    });
    // An error: the last callback has dropped its end.
    let _ = all_answered.recv();
    Ok(in_time.load(Ordering::Relaxed))
}

const REQUESTS: u64 = 200;

/// The work of each request.
const WORK: u64 = 100;
