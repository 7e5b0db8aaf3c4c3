//! Policies, which pick a worker's next color in programs that need more than priorities: the
//! trait, and one for tests.

use crate::Priority;
use crate::environment::HashMap;

/// Picks the color that a worker runs next; set by [`crate::Builder::policy`], one for each worker.
///
/// Without a policy, the oldest color of the highest priority goes first; lists inside the colors
/// do that, at no cost. With one, each turn costs some fifty nanoseconds more, plus the policy's
/// own time.
///
/// The scheduler guarantees under every policy:
///
/// - **A turn keeps to its color.** The worker asks the policy between turns; a turn runs the
///   callbacks that were queued when it began, for half a millisecond at most.
/// - **Age bound (C7).** Every 32nd pick takes the oldest color. So a color with `k` older ones
///   before it starts after at most `32 (k + 1)` picks, whatever the policy does. A color that
///   another worker steals is new there.
/// - **Wrong answers do no harm.** `None` while colors wait, or a key of a color that no longer
///   waits, means the oldest color. A policy that panics is dropped, reported to the panic handler,
///   and permanently replaced by the default.
///
/// A policy runs on its worker's thread, while no lock is held. It may lock, allocate, and even
/// post, but its worker does nothing else meanwhile: keep it short, and never block. It sees the
/// colors in its own worker's run queue. Other workers without work take colors from there without
/// asking.
///
/// ```
/// use dapple_sched::{Policy, Runnable, RunnableKey, Runtime};
///
/// /// The newest first: what came last is still in the cache.
/// #[derive(Default)]
/// struct Newest(Vec<RunnableKey>);
///
/// impl Policy for Newest {
///     fn queued(&mut self, color: &Runnable) {
///         self.0.push(color.key);
///     }
///
///     fn removed(&mut self, key: RunnableKey) {
///         self.0.retain(|&known| known != key);
///     }
///
///     fn pick(&mut self) -> Option<RunnableKey> {
///         self.0.pop()
///     }
/// }
///
/// let runtime = Runtime::builder().policy(|_worker| Box::new(Newest::default())).build()?;
/// # assert!(runtime.block_on(runtime.spawn(async {})).is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Policy {
    /// A color has become runnable on this worker, or has more to run after its turn.
    fn queued(&mut self, color: &Runnable);

    /// A waiting color has received more: its length has grown, and perhaps its priority.
    fn changed(&mut self, color: &Runnable) {
        let _ = color;
    }

    /// A color no longer waits, although the policy did not pick it: it was the oldest, or another
    /// worker took it. The key may be one that the policy has just picked and forgotten.
    fn removed(&mut self, key: RunnableKey);

    /// The color to run next, which the policy forgets: [`Policy::queued`] reports it again if it
    /// waits again.
    fn pick(&mut self) -> Option<RunnableKey>;
}

/// A color that waits for its turn, as a [`Policy`] sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runnable {
    /// Its name until it leaves the run queue.
    pub key: RunnableKey,
    /// [`crate::Color::id`], for a look-up of the program's own data on the color, such as a
    /// deadline. Fresh colors have numbers of their own; a named color has the number that the
    /// program chose.
    pub color_id: u64,
    /// The highest priority that waits in it.
    pub priority: Priority,
    /// It has work from another thread, an I/O event or a timer, or a task waits for it.
    pub from_outside: bool,
    /// Number of callbacks that wait in it.
    pub queued: usize,
    /// Mean time of its callbacks, sampled: nanoseconds, 0 while unknown, at most 65,535.
    pub mean_ns: u64,
}

/// One wait of a color in one worker's run queue; never reused for another. The smaller of two
/// waits longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunnableKey {
    /// The number of this wait, in the order of reports to the policy.
    pub(super) serial: u64,
    /// Its slot on the worker's board.
    pub(crate) slot: u32,
}

/// Picks at random, for tests: each seed gives another order, and the same seed the same one.
///
/// If the result of a program depends on the order of its colors, some seed shows it. Runs with the
/// same seed pick in the same order if there is one worker, no work from outside, and no turn that
/// its time slice cuts off; otherwise timing matters, too.
///
/// ```
/// use dapple_sched::{Runtime, SeededRandom};
///
/// for seed in 0..10 {
///     let runtime = Runtime::builder().workers(1).policy(move |_| Box::new(SeededRandom::new(seed))).build()?;
///     let sum = runtime.block_on(runtime.spawn(async { 1 + 2 }));
///     assert_eq!(sum.unwrap(), 3, "with seed {seed}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SeededRandom {
    state: u64,
    waiting: Vec<RunnableKey>,
    /// The index of each key in `waiting`.
    places: HashMap<RunnableKey, usize>,
}

impl SeededRandom {
    /// A policy with that seed. Give each worker a different seed: they see different colors
    /// anyway.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: seed, waiting: Vec::new(), places: HashMap::default() }
    }

    /// The next number of splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn take(&mut self, place: usize) -> RunnableKey {
        let key = self.waiting.swap_remove(place);
        self.places.remove(&key);
        if let Some(&moved) = self.waiting.get(place) {
            self.places.insert(moved, place);
        }
        key
    }
}

impl Policy for SeededRandom {
    fn queued(&mut self, color: &Runnable) {
        self.places.insert(color.key, self.waiting.len());
        self.waiting.push(color.key);
    }

    fn removed(&mut self, key: RunnableKey) {
        if let Some(&place) = self.places.get(&key) {
            self.take(place);
        }
    }

    fn pick(&mut self) -> Option<RunnableKey> {
        let count = self.waiting.len() as u64;
        if count == 0 {
            return None;
        }
        let place = self.next() % count;
        Some(self.take(place as usize))
    }
}
