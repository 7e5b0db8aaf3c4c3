//! Counters, each written by one worker and read by anybody.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one worker. Written by its own thread only, with plain loads and stores.
#[derive(Default)]
pub(crate) struct Counters {
    callbacks: AtomicU64,
    turns: AtomicU64,
    steals: AtomicU64,
    colors_stolen: AtomicU64,
    parks: AtomicU64,
    panics: AtomicU64,
}

/// Adds without a locked instruction; there is one writer.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    #[inline]
    pub(crate) fn turn(&self, callbacks: u32) {
        add(&self.callbacks, u64::from(callbacks));
        add(&self.turns, 1);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    pub(crate) fn steal(&self, colors: usize) {
        if colors > 0 {
            add(&self.steals, 1);
            add(&self.colors_stolen, colors as u64);
        }
    }

    pub(crate) fn park(&self) {
        add(&self.parks, 1);
    }

    pub(crate) fn panic(&self) {
        // Rare, and not always on the worker's own thread.
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self, queue_len: usize) -> WorkerStats {
        WorkerStats {
            callbacks: self.callbacks.load(Relaxed),
            turns: self.turns.load(Relaxed),
            steals: self.steals.load(Relaxed),
            colors_stolen: self.colors_stolen.load(Relaxed),
            parks: self.parks.load(Relaxed),
            panics: self.panics.load(Relaxed),
            queue_len: queue_len as u64,
        }
    }
}

/// What a runtime has done since it started; see [`crate::Handle::stats`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// One entry per worker.
    pub workers: Vec<WorkerStats>,
    /// Tasks that have started and not ended.
    pub tasks_live: u64,
    /// Callbacks that threads other than workers have posted, wakes of tasks included.
    pub posts_outside: u64,
}

/// What one worker has done since it started.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Callbacks run, polls of tasks included.
    pub callbacks: u64,
    /// Turns: how often it took up a color.
    pub turns: u64,
    /// How often it took colors from another worker.
    pub steals: u64,
    /// How many colors it took.
    pub colors_stolen: u64,
    /// How often it went to sleep.
    pub parks: u64,
    /// Callbacks and tasks that panicked.
    pub panics: u64,
    /// Runnable colors in its run queue, as last seen.
    pub queue_len: u64,
}
