//! Counters of workers and colors. Nearly all have one writer at a time, and any thread may read
//! them. All are `Relaxed`: they order nothing. (`Slot::is_asleep` orders the counters that a
//! shutdown reads.)

use crate::color::Color;
use crate::color::rights::ColorRef;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one worker. Its own thread writes them, with plain loads and stores, except
/// where noted.
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

/// Number of measured callbacks, and the times that they waited and ran.
#[derive(Default)]
pub(crate) struct Times {
    measured: AtomicU64,
    wait_ns: AtomicU64,
    run_ns: AtomicU64,
}

impl Times {
    pub(crate) fn add(&self, count: u64, wait_ns: u64, run_ns: u64) {
        // By locked instructions, because two threads may add at once: readers overlap, and a turn
        // may end before its last callback does.
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
        // Rare, and sometimes on another thread.
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

/// The activity of a runtime since its start; see [`crate::Handle::stats`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// One entry per worker.
    pub workers: Vec<WorkerStats>,
    /// The number of workers in use, the first ones; the others rest. See
    /// [`crate::Builder::follow_cpus`].
    pub workers_active: usize,
    /// Tasks that have started and not ended.
    pub tasks_live: u64,
    /// Callbacks posted by threads that are not workers, including wakes of tasks.
    pub posts_outside: u64,
}

/// The activity of one worker since its start.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Callbacks run, polls of tasks included.
    pub callbacks: u64,
    /// Turns: how often it ran callbacks of a color.
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
    /// Callbacks that wait in the colors at home on it, whether these are in its run queue, run or
    /// are held, and even if it has not noticed them yet. Running ones do not count.
    pub queued: u64,
    /// Callbacks run while times were measured, and closures in line; see
    /// [`crate::Handle::measure_times`].
    pub measured: u64,
    /// The total time that these waited, in nanoseconds.
    pub wait_ns: u64,
    /// The total time that these ran, in nanoseconds. A callback that runs inside another, such as
    /// the poll of a task that was granted a state, counts only for itself; so does a closure in
    /// line.
    pub run_ns: u64,
}

/// The activity of one color since it was made, and its queue; see [`Color::stats`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ColorStats {
    /// Callbacks run, including polls of tasks and queued waits for the color. Exact. Closures that
    /// ran in line because the color was free do not count: see `measured`.
    pub callbacks: u64,
    /// Callbacks that wait now. A running one does not count.
    pub queued: u64,
    /// The most that waited at one time; see [`Color::queue_len_max`].
    pub queued_max: u64,
    /// How often another worker has taken the color over.
    pub stolen: u64,
    /// Its home worker.
    pub home: usize,
    /// Mean time of a callback in nanoseconds: sampled, weighted towards the recent past, at most
    /// 65,535, and 0 until one was timed. Closures in line are not included, so it stays 0 for a
    /// state that only they use: for those turn on [`crate::Handle::measure_times`], and see
    /// `run_ns`.
    pub mean_ns: u64,
    /// Callbacks run while times were measured, and closures that held the color in line, such as
    /// those of [`crate::Colored::with`], [`crate::Colored::read`] and [`crate::When::with`]; see
    /// [`crate::Handle::measure_times`]. Exact. A closure inside a callback that holds the color
    /// already is a part of that callback.
    pub measured: u64,
    /// The total time that these waited, in nanoseconds. The wait of a request to read counts only
    /// if no other reader was let in before it.
    pub wait_ns: u64,
    /// The total time that these ran, in nanoseconds; as [`WorkerStats::run_ns`]. A closure that
    /// holds several colors counts for each of them.
    pub run_ns: u64,
}

impl Color {
    /// Counters of this color. They are always kept at almost no cost, so call this as often as you
    /// like.
    ///
    /// Cost: the lock of the color's home worker for a few instructions, and some loads. While
    /// callbacks run elsewhere, the numbers may be of slightly different moments.
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
