//! Runs seeds on all processors: a simulation is one thread, and simulations share nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;

use dapple_sim::{Outcome, run_seed};
use scenarios::Setup;

/// Runs seeds, and hands the outcomes over in the order of the seeds, until `take` breaks. By then some later seeds may have run in vain.
pub(crate) fn in_order<B>(
    seeds: impl Iterator<Item = u64> + Send,
    setup: Setup,
    mut take: impl FnMut(&Outcome) -> ControlFlow<B>,
) -> Option<B> {
    let (left, is_over) = (Mutex::new(seeds.enumerate()), AtomicBool::new(false));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (done_tx, done_rx) = sync_channel(threads * AHEAD_MAX);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (done_tx, left, is_over) = (done_tx.clone(), &left, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((place, seed)) = next else { break };
                    let outcome = run_seed(seed, &setup);
                    if done_tx.send((place, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done_tx);
        let (mut waiting, mut next) = (BTreeMap::new(), 0);
        for (place, outcome) in done_rx {
            waiting.insert(place, outcome);
            while let Some(outcome) = waiting.remove(&next) {
                next += 1;
                if let ControlFlow::Break(found) = take(&outcome) {
                    // The threads see it, or that the channel is closed.
                    is_over.store(true, Ordering::Relaxed);
                    return Some(found);
                }
            }
        }
        None
    })
}

/// Outcomes of each thread that wait while one that failed is looked at.
const AHEAD_MAX: usize = 64;
