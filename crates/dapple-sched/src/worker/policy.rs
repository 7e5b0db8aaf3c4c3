//! What picks the next color on a worker, where a program wants more than priorities: a trait, and one for tests.

use std::collections::HashMap;

use crate::Priority;

/// Picks the color that a worker runs next; set by [`crate::Builder::policy`], one for each worker.
///
/// Without one, the color of the highest priority goes first, and of those the one that has waited longest: that is done
/// by lists inside the colors, and costs nothing that a policy would add. With one, each turn costs some
/// fifty nanoseconds more, and what the policy itself takes.
///
/// What the scheduler keeps to under every policy:
///
/// - **A turn keeps to its color.** The policy is asked between turns; a turn runs what was queued when it began, for
///   half a millisecond at most.
/// - **Age bound (C7).** Every 32nd pick is that of the oldest color. So a color with `k` older ones in front of it
///   starts after at most `32 (k + 1)` picks, whatever the policy does. A color that another worker steals is new there.
/// - **Nonsense does no harm.** `None` while colors wait, or a key of a color that no longer waits, means the oldest.
///   A policy that panics is dropped, reported to the panic handler, and replaced by the default for good.
///
/// A policy runs on its worker's thread, while no lock is held. It may lock, allocate, and even post, but while it
/// thinks its worker does nothing else: keep it short, and never block. It sees the colors that stand in its own worker's
/// run queue. Other workers that run dry take colors from there without asking.
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

    /// More has come to a color that waits: its length has grown, and perhaps its priority.
    fn changed(&mut self, color: &Runnable) {
        let _ = color;
    }

    /// A color no longer waits, although the policy did not pick it: it was the oldest, or another worker took it. It
    /// may be a key that the policy has just picked, and has forgotten.
    fn removed(&mut self, key: RunnableKey);

    /// The color to run next, which the policy forgets: it is told of it anew if it waits again.
    fn pick(&mut self) -> Option<RunnableKey>;
}

/// A color that waits for its turn, as a [`Policy`] sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Runnable {
    /// Names it until it leaves the run queue.
    pub key: RunnableKey,
    /// [`crate::Color::id`]: by it, a policy finds what the program knows of the color, such as a deadline. Fresh colors
    /// have numbers of their own; a named color has the number that the program chose.
    pub color_id: u64,
    /// The highest priority that waits in it.
    pub priority: Priority,
    /// Something waits in it that came from another thread, an I/O event or a timer, and not from a callback; or a task waits for it.
    pub from_outside: bool,
    /// How many callbacks wait in it.
    pub queued: usize,
    /// What its callbacks take in the mean, sampled: nanoseconds, 0 while that is not known, 65,535 at most.
    pub mean_ns: u64,
}

/// One wait of a color in one worker's run queue; never used again for another. The smaller of two waits longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunnableKey {
    /// Counts the waits that the policy was told of.
    pub(super) serial: u64,
    /// Where it stands on the worker's board.
    pub(crate) slot: u32,
}

/// Picks at random, for tests: another order for each seed, and the same for the same one.
///
/// A program whose result depends on the order of its colors shows it under some seed. On one worker, with nothing from
/// outside and no turn that its time slice cuts off, a run with the same seed picks in the same order; otherwise the
/// machine has its say.
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
    /// Where each stands in `waiting`.
    places: HashMap<RunnableKey, usize>,
}

impl SeededRandom {
    /// A policy with that seed. Give each worker another one: they see different colors anyway.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: seed, waiting: Vec::new(), places: HashMap::new() }
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
