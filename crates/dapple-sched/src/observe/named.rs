//! Names of tasks, to find the cause of a hang or a slow program.
//!
//! Names are stored separately from tasks, so a task without one does not grow, and its poll does
//! not search for one. A named task is in a list of its runtime as long as it lives, and the worker
//! that polls it shows it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::color::Color;
use crate::color::node::Origin;
use crate::observe::dump::NamedDump;
use crate::observe::label::Label;
use crate::runtime::Handle;
use crate::runtime::context;
use crate::sync::atomic::{AtomicUsize, Ordering::*};
use crate::task::{self, JoinHandle, Start};

/// A name for the task that is started next.
///
/// [`Handle::dump`] shows all named tasks, running or waiting, and the report of a slow callback
/// has the name. Cost: an allocation for each named task, and two uncontended locks for each of its
/// polls; nothing for others.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let task = dapple_sched::named("cleaner").spawn(std::future::pending::<()>());
/// let dump = runtime.handle().dump();
/// assert_eq!(&*dump.named[0].name, "cleaner");
/// assert!(dump.to_string().contains("task \"cleaner\""));
/// # drop(task);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn named(name: impl Into<Arc<str>>) -> Named {
    Named { name: name.into() }
}

/// A name for a task that is about to start; see [`named`].
#[derive(Clone, Debug)]
#[must_use = "a name alone starts nothing"]
pub struct Named {
    name: Arc<str>,
}

impl Named {
    /// Starts a task of this name with a color of its own, which has the name as its label
    /// ([`Color::set_label`]) unless the process has 500 already; see [`crate::spawn`].
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    ///
    /// # Panics
    /// If no runtime is current; see [`Handle::current`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = dapple_sched::named(format!("answer {}", 1)).spawn(async { 42 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let color = Handle::current().new_color();
        color.set(Label::of_name(&self.name));
        self.spawn_in(&color, future)
    }

    /// Starts a task with this name and the given color; see [`Color::spawn`].
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let color = dapple_sched::Color::new();
    /// let task = dapple_sched::named("answer").spawn_in(&color, async { 42 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_in<F>(self, color: &Color, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (color, spawned_from) = (color.resolved(), Location::caller());
        let listing = Listing::new(color.shared().names.clone(), self.name, color.id(), spawned_from);
        task::spawn(Start::Colored(color), false, spawned_from, async move {
            let listing = listing;
            let mut future = pin!(future);
            poll_fn(|cx| {
                let _shown = listing.show();
                future.as_mut().poll(cx)
            })
            .await
        })
    }
}

/// A named task, as dumps see it.
pub(crate) struct NamedTask {
    pub(crate) name: Arc<str>,
    color_id: u64,
    spawned_from: Origin,
    /// The worker that polls it, or [`NO_WORKER`].
    worker: AtomicUsize,
}

/// The named tasks of a runtime that have not ended, oldest first.
#[derive(Default)]
pub(crate) struct Names(Mutex<List>);

#[derive(Default)]
struct List {
    next_key: u64,
    tasks: BTreeMap<u64, Arc<NamedTask>>,
}

/// The task that a worker polls, if it has a name.
#[derive(Default)]
pub(crate) struct Shown(Mutex<Option<Arc<NamedTask>>>);

impl Names {
    /// At most `max` of them, and how many more there are.
    pub(crate) fn dump(&self, max: usize) -> (Vec<NamedDump>, usize) {
        let list = lock(&self.0);
        let shown: Vec<NamedDump> = list.tasks.values().take(max).map(|task| task.dump()).collect();
        let left_out = list.tasks.len() - shown.len();
        (shown, left_out)
    }
}

impl Shown {
    /// The name of the task that the worker polls.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        lock(&self.0).as_ref().map(|task| task.name.clone())
    }

    fn replace(&self, task: Option<Arc<NamedTask>>) -> Option<Arc<NamedTask>> {
        std::mem::replace(&mut *lock(&self.0), task)
    }
}

impl NamedTask {
    fn dump(&self) -> NamedDump {
        // Relaxed: for statistics.
        let worker = self.worker.load(Relaxed);
        NamedDump {
            name: self.name.clone(),
            color_id: self.color_id,
            spawned_from: self.spawned_from,
            worker: (worker != NO_WORKER).then_some(worker),
        }
    }
}

/// Keeps a task in the list as long as its future lives.
struct Listing {
    names: Arc<Names>,
    key: u64,
    task: Arc<NamedTask>,
}

impl Listing {
    fn new(names: Arc<Names>, name: Arc<str>, color_id: u64, spawned_from: Origin) -> Listing {
        let task = Arc::new(NamedTask { name, color_id, spawned_from, worker: AtomicUsize::new(NO_WORKER) });
        let key = {
            let mut list = lock(&names.0);
            list.next_key += 1;
            let key = list.next_key;
            list.tasks.insert(key, task.clone());
            key
        };
        Listing { names, key, task }
    }

    /// Called at the start of a poll. Does nothing on a thread that is not a worker.
    fn show(&self) -> Polled<'_> {
        let before = context::with_worker(|worker| {
            // Relaxed: for statistics.
            self.task.worker.store(worker.index, Relaxed);
            worker.slot().shown.replace(Some(self.task.clone()))
        });
        Polled { task: &self.task, before: before.flatten() }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let removed = lock(&self.names.0).tasks.remove(&self.key);
        drop(removed);
    }
}

/// The worker shows the task until this is dropped.
struct Polled<'a> {
    task: &'a NamedTask,
    /// The named task that polls this one in its poll, if any.
    before: Option<Arc<NamedTask>>,
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        let before = self.before.take();
        let shown = context::with_worker(|worker| worker.slot().shown.replace(before));
        drop(shown);
        // Relaxed: for statistics.
        self.task.worker.store(NO_WORKER, Relaxed);
    }
}

/// No foreign code runs under these locks, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const NO_WORKER: usize = usize::MAX;
