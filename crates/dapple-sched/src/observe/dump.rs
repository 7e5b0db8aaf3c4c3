//! A snapshot of the runtime, to find the cause of a hang.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::color::cell::Kind;
use crate::runtime::Handle;

/// The state of a runtime at one moment; see [`Handle::dump`]. Print it, or read its fields.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Dump {
    /// One entry per worker.
    pub workers: Vec<WorkerDump>,
    /// Colors that run or are held, or that have waiting callbacks: at most 1,000 of either kind,
    /// those with the most callbacks first.
    pub colors: Vec<ColorDump>,
    /// Number of such colors beyond the limit.
    pub colors_left_out: usize,
    /// Number of colors, idle ones included.
    pub colors_alive: usize,
    /// Tasks that have started and not ended.
    pub tasks_live: usize,
    /// Tasks started by [`crate::named`] that have not ended, running or waiting: at most 1,000,
    /// the oldest first.
    pub named: Vec<NamedDump>,
    /// Number of such tasks beyond the limit.
    pub named_left_out: usize,
    /// All tasks that have not ended, by the line that spawned them and by their wait: at most 200
    /// entries, those with the most tasks first.
    pub tasks: Vec<TasksDump>,
    /// Number of tasks that are in none of these entries.
    pub tasks_left_out: usize,
}

/// Tasks that one line spawned and that wait for the same thing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TasksDump {
    /// The line that spawned them.
    pub spawned_from: &'static Location<'static>,
    /// Number of tasks.
    pub count: usize,
    /// The wait of each of them.
    pub wait: TaskWait,
}

/// The wait of a task, as far as the runtime knows. If the task waits for several events at once,
/// one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TaskWait {
    /// None: it is polled, or about to be.
    Runs,
    /// Waits for a color, as in [`crate::Colored::with`].
    Color {
        /// As [`crate::Color::id`].
        color_id: u64,
        /// The line that asked for the color.
        asked_at: &'static Location<'static>,
    },
    /// Waits for several colors at once, as in [`crate::When::with`].
    Colors {
        /// The line that asked for the colors.
        asked_at: &'static Location<'static>,
    },
    /// Waits for the end of a task.
    Join {
        /// The line that spawned that task.
        spawned_from: &'static Location<'static>,
    },
    /// Waits for a timer.
    Timer,
    /// Waits to read from a descriptor.
    Readable,
    /// Waits for room to write to a descriptor.
    Writable,
    /// Waits for an object that the runtime does not know: a channel, a lock, a function in the
    /// blocking pool, or the program's own future.
    Unknown,
}

/// A task that has a name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedDump {
    /// Its name.
    pub name: Arc<str>,
    /// Its color, as [`crate::Color::id`] tells it.
    pub color_id: u64,
    /// The line that spawned it.
    pub spawned_from: &'static Location<'static>,
    /// The worker that polls it; `None` if it waits.
    pub worker: Option<usize>,
}

/// The state of one worker.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerDump {
    /// The callback that it runs.
    pub running: Option<RunningDump>,
    /// It sleeps until work arrives.
    pub asleep: bool,
    /// It has stopped for good.
    pub stopped: bool,
    /// Callbacks that wait in the colors at home on it, as [`crate::WorkerStats::queued`].
    pub callbacks: u64,
    /// Runnable colors in its run queue.
    pub queue_len: usize,
    /// Light tasks that wait to be polled here: they have no color, because no code asked for one.
    pub tasks: usize,
    /// The first colors of the queue, at most 32: lowest priority and oldest first.
    pub queue: Vec<QueuedDump>,
}

/// A callback that runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunningDump {
    /// Its color, as [`crate::Color::id`] tells it.
    pub color_id: u64,
    /// The poll of a light task: its color does not exist, because no code asked for it; `color_id`
    /// would be its number.
    pub colorless: bool,
    /// The line that posted it, or that spawned the task.
    pub posted_from: Option<&'static Location<'static>>,
    /// The name of the task, if [`crate::named`] started it.
    pub name: Option<Arc<str>>,
    /// The least time for which it has kept the worker: the monitor notices a callback only after
    /// up to 10 ms.
    pub running_for: Option<Duration>,
}

/// A color in a run queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueuedDump {
    /// As [`crate::Color::id`].
    pub color_id: u64,
    /// Its level in the queue.
    pub priority: u8,
    /// Number of callbacks that wait in it.
    pub callbacks: u64,
}

/// A color that is held, or that has waiting callbacks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ColorDump {
    /// As [`crate::Color::id`].
    pub color_id: u64,
    /// Tells apart colors with the same number.
    pub kind: ColorKind,
    /// Its state, and its holder.
    pub state: ColorState,
    /// Its home worker.
    pub home: usize,
    /// Whether it stays there; see [`crate::Color::pinned`].
    pub pinned: bool,
    /// Number of callbacks that wait in it. A running one does not count.
    pub callbacks: u64,
    /// The line that asked to hold it, unless a turn holds it.
    pub held_from: Option<&'static Location<'static>>,
}

/// The way in which a color is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ColorKind {
    /// [`crate::Color::DEFAULT`] of the runtime.
    Default,
    /// By its name, which is its number.
    Named,
    /// By its handles only; its number is a serial number.
    Fresh,
}

/// The state of a color, and its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ColorState {
    /// Its home has not yet noticed new callbacks from elsewhere: the home is in a callback, or
    /// about to check.
    Posted,
    /// It is in the run queue of its home.
    Queued,
    /// A turn of it runs on its home.
    Running,
    /// A closure that was called in line holds it, for example by [`crate::Colored::with`], on that
    /// worker or on another thread.
    InLine {
        /// The worker; `None` on a thread that is not a worker.
        worker: Option<usize>,
    },
    /// It was handed to a waiting task, which is polled or about to be.
    HandedToTask,
    /// It was handed to a waiter on another executor, which has not been polled since.
    HandedToForeign,
    /// A request for several colors holds it, and waits for the others or runs.
    HeldForRequest,
    /// Readers hold it.
    Read {
        /// Number of readers.
        readers: u32,
    },
    /// Its worker has stopped, and its waiting callbacks are being dropped.
    Dropping,
}

impl Handle {
    /// Reads all workers and colors: which callbacks run or wait, and which holders they wait for.
    /// For a hung or slow program; works from any thread, at any time, even while workers are
    /// stuck.
    ///
    /// Cost: some microseconds, about a millisecond for 100,000 colors, about ten for 100,000
    /// tasks. It takes the lock of each worker for a few instructions at a time, and never two at
    /// once, so the parts of the snapshot may be of slightly different moments.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let state = Colored::new(7);
    /// let dump = state.try_with(|_| runtime.handle().dump()).unwrap();
    /// assert_eq!(dump.colors.len(), 1);
    /// let text = dump.to_string();
    /// assert!(text.contains("held in line by a thread outside"), "{text}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump(&self) -> Dump {
        crate::observe::inspect::dump(self.shared())
    }
}

impl From<Kind> for ColorKind {
    fn from(kind: Kind) -> ColorKind {
        match kind {
            Kind::Default => ColorKind::Default,
            Kind::Named => ColorKind::Named,
            Kind::Fresh | Kind::Pinned => ColorKind::Fresh,
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = self.colors.len() + self.colors_left_out;
        writeln!(
            f,
            "{} workers, {} tasks, {} colors, {busy} of them run, are held or have callbacks waiting",
            self.workers.len(),
            self.tasks_live,
            self.colors_alive
        )?;
        for (index, worker) in self.workers.iter().enumerate() {
            writeln!(f, "worker {index}: {worker}")?;
            for queued in &worker.queue {
                let (color, callbacks) = (queued.color_id, queued.callbacks);
                writeln!(f, "  queued: color {color}, priority {}, {callbacks} callbacks", queued.priority)?;
            }
            if worker.queue_len > worker.queue.len() {
                writeln!(f, "  and {} more", worker.queue_len - worker.queue.len())?;
            }
        }
        self.colors.iter().try_for_each(|color| writeln!(f, "{color}"))?;
        if self.colors_left_out > 0 {
            writeln!(f, "and {} more colors", self.colors_left_out)?;
        }
        self.named.iter().try_for_each(|task| writeln!(f, "{task}"))?;
        if self.named_left_out > 0 {
            writeln!(f, "and {} more tasks with names", self.named_left_out)?;
        }
        self.tasks.iter().try_for_each(|tasks| writeln!(f, "{tasks}"))?;
        if self.tasks_left_out > 0 {
            writeln!(f, "and {} more tasks", self.tasks_left_out)?;
        }
        Ok(())
    }
}

impl fmt::Display for WorkerDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.running {
            _ if self.stopped => f.write_str("stopped")?,
            _ if self.asleep => f.write_str("asleep")?,
            None => f.write_str("between callbacks")?,
            Some(running) => {
                match running.colorless {
                    true => f.write_str("polls a task")?,
                    false => write!(f, "runs a callback of color {}", running.color_id)?,
                }
                if let Some(name) = &running.name {
                    write!(f, " (task {name:?})")?;
                }
                if let Some(posted_from) = running.posted_from {
                    write!(f, ", {} from {posted_from}", if running.colorless { "spawned" } else { "posted" })?;
                }
                if let Some(running_for) = running.running_for {
                    write!(f, ", for at least {} ms", running_for.as_millis())?;
                }
            }
        }
        if self.queue_len > 0 {
            write!(f, "; {} colors wait", self.queue_len)?;
        }
        if self.tasks > 0 {
            write!(f, "; {} tasks wait", self.tasks)?;
        }
        if self.callbacks > 0 { write!(f, "; {} callbacks wait", self.callbacks) } else { Ok(()) }
    }
}

impl fmt::Display for NamedDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {:?}: color {}, spawned from {}", self.name, self.color_id, self.spawned_from)?;
        match self.worker {
            Some(worker) => write!(f, "; polled by worker {worker}"),
            None => f.write_str("; waits"),
        }
    }
}

impl fmt::Display for TasksDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, plural) = (self.count, if self.count == 1 { "" } else { "s" });
        write!(f, "{count} task{plural} spawned from {}: {}", self.spawned_from, self.wait)
    }
}

impl fmt::Display for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskWait::Runs => f.write_str("polled, or about to be"),
            TaskWait::Color { color_id, asked_at } => write!(f, "waits for color {color_id}, asked for at {asked_at}"),
            TaskWait::Colors { asked_at } => write!(f, "waits for several colors, asked for at {asked_at}"),
            TaskWait::Join { spawned_from } => write!(f, "waits for the end of a task spawned from {spawned_from}"),
            TaskWait::Timer => f.write_str("waits for a timer"),
            TaskWait::Readable => f.write_str("waits for a descriptor to be readable"),
            TaskWait::Writable => f.write_str("waits for a descriptor to be writable"),
            TaskWait::Unknown => f.write_str("waits"),
        }
    }
}

impl fmt::Display for ColorDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pinned {
            f.write_str("pinned ")?;
        }
        match self.kind {
            ColorKind::Default => f.write_str("default color")?,
            ColorKind::Named => write!(f, "color named {}", self.color_id)?,
            ColorKind::Fresh => write!(f, "color #{}", self.color_id)?,
        }
        let home = self.home;
        match self.state {
            ColorState::Posted => write!(f, ": waits for worker {home} to take notice")?,
            ColorState::Queued => write!(f, ": in the queue of worker {home}")?,
            ColorState::Running => write!(f, ": runs on worker {home}")?,
            ColorState::InLine { worker: Some(worker) } => write!(f, ": held in line by worker {worker}")?,
            ColorState::InLine { worker: None } => f.write_str(": held in line by a thread outside")?,
            ColorState::HandedToTask => f.write_str(": handed to a waiting task")?,
            ColorState::HandedToForeign => f.write_str(": handed to a waiter on another executor")?,
            ColorState::HeldForRequest => f.write_str(": held for a request for several colors")?,
            ColorState::Read { readers } => write!(f, ": {readers} read it")?,
            ColorState::Dropping => f.write_str(": being emptied")?,
        }
        if let Some(held_from) = self.held_from {
            write!(f, ", asked for at {held_from}")?;
        }
        if self.callbacks > 0 { write!(f, "; {} callbacks wait", self.callbacks) } else { Ok(()) }
    }
}
