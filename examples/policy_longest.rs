//! The longest color first: what one color has to do cannot be shared, so it should start early (thesis, section 7.1).
//!
//! ```text
//! cargo run --example policy_longest
//! ```
//!
//! Twelve colors with one callback each, and one color with twelve, on two workers. Oldest first, the short ones are
//! through after six units of time, and then one worker alone has twelve to go. Longest first, both end after twelve.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dapple::{Color, Policy, Runnable, RunnableKey};

fn main() -> io::Result<()> {
    let by_default = run(dapple::builder())?;
    let by_length = run(dapple::builder().policy(|_| Box::new(Longest::default())))?;
    println!("units of time by the default, oldest first: {by_default:.1}");
    println!("units of time by the longest color first:   {by_length:.1}");
    Ok(())
}

/// Of the colors that wait, takes the one with most callbacks. It looks at all of them: enough for a few hundred.
#[derive(Default)]
struct Longest {
    queued: HashMap<RunnableKey, usize>,
}

impl Policy for Longest {
    fn queued(&mut self, color: &Runnable) {
        self.queued.insert(color.key, color.queued);
    }

    fn changed(&mut self, color: &Runnable) {
        self.queued.insert(color.key, color.queued);
    }

    fn removed(&mut self, key: RunnableKey) {
        self.queued.remove(&key);
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        // Of equally long ones the oldest, which has the smallest key.
        let longest = self.queued.iter().max_by_key(|&(key, queued)| (queued, std::cmp::Reverse(key)));
        let key = *longest?.0;
        self.queued.remove(&key);
        Some(key)
    }
}

/// How many units of time all callbacks take on two workers.
fn run(builder: dapple::Builder) -> io::Result<f64> {
    let runtime = builder.workers(2).build()?;
    let _entered = runtime.enter();
    let (alive, all_done) = mpsc::channel::<()>();
    let started = Instant::now();
    Color::new().post(move || {
        let short: Vec<_> = (0..COUNT).map(|_| Color::new()).collect();
        let long = Color::new();
        for color in short.iter().chain([&long; COUNT]) {
            let alive = alive.clone();
            color.post(move || {
                // Stands for work, so that the example needs no two cores. Never block a worker otherwise.
                thread::sleep(UNIT);
                drop(alive);
            });
        }
    });
    // An error: the last callback has dropped its end.
    let _ = all_done.recv();
    Ok(started.elapsed().as_secs_f64() / UNIT.as_secs_f64())
}

const COUNT: usize = 12;

const UNIT: Duration = Duration::from_millis(5);
