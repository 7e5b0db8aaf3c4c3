//! Tells of a step that does not end: a step cannot be cut off, so its simulation would hang without a word.
// REAL: it is a thread, and looks at the time that people wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// A running simulation, as the watchdog sees it.
pub(crate) struct Watched {
    seed: u64,
    /// The number of the step that runs, times [`HOSTS`], and its host; zero before the first.
    step: AtomicU64,
    hosts: Vec<String>,
}

impl Watched {
    pub(crate) fn new(seed: u64, hosts: Vec<String>) -> Arc<Watched> {
        static STARTED: Once = Once::new();
        let watched = Arc::new(Watched { seed, step: AtomicU64::new(0), hosts });
        all().push(Arc::downgrade(&watched));
        STARTED.call_once(|| {
            // Without it, simulations run as well.
            let _ = thread::Builder::new().name("sim-watchdog".to_owned()).spawn(|| {
                let mut seen = Vec::new();
                loop {
                    thread::sleep(LONG / 2);
                    look(&mut seen, |text| eprintln!("{text}"));
                }
            });
        });
        watched
    }

    /// A step of this host begins.
    pub(crate) fn begin(&self, step: u64, host: usize) {
        // Relaxed: the watchdog wants to know whether it changes, and reads nothing else with it.
        self.step.store(step * HOSTS + host as u64, Relaxed);
    }

    fn text(&self, step: u64) -> String {
        let host = self.hosts.get((step % HOSTS) as usize).map_or("?", String::as_str);
        format!(
            "dapple-sim: seed {}: step {} has run for {LONG:?} and more, on the host {host}. Its program loops without an await, or waits \
             for something outside of the simulation (a lock, a channel or a child of the standard library). A step cannot be cut off: end \
             this process, and run the seed in a debugger to see where it is",
            self.seed,
            step / HOSTS,
        )
    }
}

/// Looks at all simulations; `seen` has those that ran at the last look, with their steps and how often those were seen.
fn look(seen: &mut Vec<(Arc<Watched>, u64, u32)>, mut tell: impl FnMut(String)) {
    let running: Vec<Arc<Watched>> = {
        let mut all = all();
        // One that only this thread keeps is over.
        seen.retain(|(watched, ..)| Arc::strong_count(watched) > 1);
        all.retain(|watched| watched.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    *seen = running
        .into_iter()
        .map(|watched| {
            let step = watched.step.load(Relaxed);
            let before = seen.iter().find(|(known, known_step, _)| Arc::ptr_eq(known, &watched) && *known_step == step);
            let looks = before.map_or(0, |(.., looks)| looks + 1);
            if looks == 2 && step > 0 {
                tell(watched.text(step));
            }
            (watched, step, looks)
        })
        .collect();
}

fn all() -> std::sync::MutexGuard<'static, Vec<Weak<Watched>>> {
    static ALL: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More than the hosts of any simulation.
const HOSTS: u64 = 1 << 8;
/// A step that takes so long is told of, once.
const LONG: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_told_of_once() {
        let (slow, quick) = (Watched::new(7_041, vec!["a".into(), "b".into()]), Watched::new(8_041, vec!["a".into()]));
        slow.begin(41, 1);
        let (mut seen, mut told) = (Vec::new(), Vec::new());
        for step in 1..9 {
            quick.begin(step, 0);
            look(&mut seen, |text| told.push(text));
        }
        // Other tests may run simulations meanwhile.
        told.retain(|text: &String| text.contains("seed 7041") || text.contains("seed 8041"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("seed 7041: step 41") && told[0].contains("on the host b"), "{told:?}");
        slow.begin(42, 0);
        drop(quick);
        look(&mut seen, |text| assert!(!text.contains("seed 7041"), "{text}"));
        assert!(!seen.iter().any(|(watched, ..)| watched.seed == 8_041));
    }
}
