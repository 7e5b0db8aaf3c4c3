//! Counters of workers and colors. Nearly all have one writer at a time, and all are read by anybody. All are `Relaxed`:
//! numbers to show, which order nothing. (What a shutdown reads of them is ordered by `Slot::is_asleep`.)

use crate::color::Color;
use crate::color::rights::ColorRef;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one worker. Written by its own thread, with plain loads and stores, unless it is said otherwise.
#[derive(Default)]
pub(crate) struct Counters {
    callbacks: AtomicU64,
    turns: AtomicU64,
    steals: AtomicU64,
    colors_stolen: AtomicU64,
    /// Written by thieves, under this worker's lock.
    colors_lost: AtomicU64,
    parks: AtomicU64,
    panics: AtomicU64,
    times: Times,
}

/// Callbacks that were measured, and for how long they have waited and run.
#[derive(Default)]
pub(crate) struct Times {
    measured: AtomicU64,
    wait_ns: AtomicU64,
    run_ns: AtomicU64,
}

impl Times {
    pub(crate) fn add(&self, count: u64, wait_ns: u64, run_ns: u64) {
        // Added with locked instructions: a turn may be over before its last callback is, and readers overlap.
        self.measured.fetch_add(count, Relaxed);
        self.wait_ns.fetch_add(wait_ns, Relaxed);
        self.run_ns.fetch_add(run_ns, Relaxed);
    }

    fn load(&self) -> (u64, u64, u64) {
        (self.measured.load(Relaxed), self.wait_ns.load(Relaxed), self.run_ns.load(Relaxed))
    }
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

    pub(crate) fn stolen_from(&self, colors: usize) {
        if colors > 0 {
            add(&self.colors_lost, colors as u64);
        }
    }

    pub(crate) fn park(&self) {
        add(&self.parks, 1);
    }

    pub(crate) fn panic(&self) {
        // Rare, and not always on the worker's own thread.
        self.panics.fetch_add(1, Relaxed);
    }

    pub(super) fn measured(&self, count: u64, wait_ns: u64, run_ns: u64) {
        self.times.add(count, wait_ns, run_ns);
    }

    pub(crate) fn snapshot(&self, queue_len: usize, queued: u64) -> WorkerStats {
        let (measured, wait_ns, run_ns) = self.times.load();
        WorkerStats {
            callbacks: self.callbacks.load(Relaxed),
            turns: self.turns.load(Relaxed),
            steals: self.steals.load(Relaxed),
            colors_stolen: self.colors_stolen.load(Relaxed),
            colors_lost: self.colors_lost.load(Relaxed),
            parks: self.parks.load(Relaxed),
            panics: self.panics.load(Relaxed),
            queue_len: queue_len as u64,
            queued,
            measured,
            wait_ns,
            run_ns,
        }
    }
}

/// What a runtime has done since it started; see [`crate::Handle::stats`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// One entry per worker.
    pub workers: Vec<WorkerStats>,
    /// The workers that work, the first ones; the others rest. See [`crate::Builder::follow_cpus`].
    pub workers_active: usize,
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
    /// How many colors other workers took from it.
    pub colors_lost: u64,
    /// How often it went to sleep.
    pub parks: u64,
    /// Callbacks and tasks that panicked.
    pub panics: u64,
    /// Runnable colors in its run queue, as last seen.
    pub queue_len: u64,
    /// Callbacks that wait in the colors that are at home on it, whether these stand in its run queue, run or are held by
    /// somebody; what it has not taken notice of yet is among them. Those that run do not count.
    pub queued: u64,
    /// Callbacks that it has run while times were measured, and closures in line; see [`crate::Handle::measure_times`].
    pub measured: u64,
    /// For how long these have waited, in nanoseconds, all together.
    pub wait_ns: u64,
    /// For how long these have run, in nanoseconds, all together. A callback that runs inside another, such as the poll of a
    /// task whose turn with a state has come, counts for itself only; so does a closure that runs in line.
    pub run_ns: u64,
}

/// What one color has done since it was made, and what waits in it; see [`Color::stats`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ColorStats {
    /// Callbacks run, polls of tasks included, as well as waits for the color that were queued. Exact. Closures that ran in
    /// line because the color was free do not count: see `measured`.
    pub callbacks: u64,
    /// Callbacks that wait now. The one that runs does not count.
    pub queued: u64,
    /// The most that waited at one time; see [`Color::queue_len_max`].
    pub queued_max: u64,
    /// How often another worker has taken the color over.
    pub stolen: u64,
    /// The worker that it is at home on.
    pub home: usize,
    /// Mean time of a callback in nanoseconds: sampled, weighted towards the recent past, and at most 65,535; 0 until
    /// one was timed. Closures in line are no part of it, and neither is a state that is used by them alone: for those turn on
    /// [`crate::Handle::measure_times`], and look at `run_ns`.
    pub mean_ns: u64,
    /// Callbacks run while times were measured, and closures run in line that held the color, such as those of
    /// [`crate::Colored::with`], [`crate::Colored::read`] and [`crate::When::with`]; see [`crate::Handle::measure_times`].
    /// Exact. A closure that runs in a callback that holds the color already is a part of that callback.
    pub measured: u64,
    /// For how long these have waited, in nanoseconds, all together. The wait of a request to read counts only if no other
    /// reader was let in before it.
    pub wait_ns: u64,
    /// For how long these have run, in nanoseconds, all together; as [`WorkerStats::run_ns`]. A closure that holds several
    /// colors counts for each of them.
    pub run_ns: u64,
}

impl Color {
    /// Counters of this color. They are kept in any case and cost next to nothing: look as often as you like.
    ///
    /// Cost: the lock of the color's home worker for a few instructions, and some loads. While callbacks run elsewhere,
    /// the numbers may be of slightly different moments.
    ///
    /// # Panics
    /// [`Color::DEFAULT`] only: if no runtime is current.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let color = Color::new();
    /// for _ in 0..2 {
    ///     color.post(|| ());
    /// }
    /// // Same color, so this comes after both, and is the third.
    /// let other = color.clone();
    /// let stats = runtime.block_on(color.spawn(async move { other.stats() })).unwrap();
    /// assert_eq!((stats.callbacks, stats.queued), (3, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> ColorStats {
        self.with_cell(|color| color.stats())
    }
}

impl ColorRef<'_> {
    fn stats(self) -> ColorStats {
        let locked = self.lock_home();
        let (home, stolen) = (locked.index(), locked.stolen());
        drop(locked);
        let (measured, wait_ns, run_ns) = self.ext.get().map_or((0, 0, 0), |ext| ext.times.load());
        ColorStats {
            callbacks: self.ran(),
            queued: self.queued(),
            queued_max: u64::from(self.len_max.load(Relaxed)),
            stolen,
            home,
            mean_ns: u64::from(self.mean_ns()),
            measured,
            wait_ns,
            run_ns,
        }
    }
}
