//! Watching callbacks one by one: events for an [`Observer`], and exact times.
//!
//! Nobody watches as a rule, and then a post pays for one branch, and the run of a callback for another, on the word of
//! the node that says where it was posted from. While somebody watches, a post makes a [`Record`], and that word holds
//! its address with the lowest bit set, until the callback is run or dropped. So what a watched callback costs is paid
//! by it alone, and nothing has to be cleared when watching ends.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Instant;

use crate::color::Color;
use crate::color::cell::ColorCell;
use crate::color::node::{Node, Origin, OwnedNode};
use crate::color::rights::ColorRef;
use crate::environment::measured_now;
use crate::memory::block;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::thread_local;
use crate::worker::Worker;

/// Is told of every callback of a runtime; see [`crate::Builder::observer`].
///
/// It is called right where things happen: on workers in the middle of their work, and on every thread that posts. So
/// it must not block, and should do no more than count, or write to a buffer. What it posts itself is not traced. A panic
/// in it is swallowed. It belongs to the runtime: a color or a handle that it keeps would keep the runtime for ever.
///
/// ```
/// use dapple_sched::{Color, Observer, Runtime, TraceEvent, TraceKind};
/// use std::sync::{Arc, mpsc};
///
/// struct Lines(mpsc::Sender<String>);
///
/// impl Observer for Lines {
///     fn event(&self, event: &TraceEvent) {
///         if let TraceKind::Ended { panicked } = event.kind {
///             let line = format!("{} ended, panicked: {panicked}", event.posted_from);
///             self.0.send(line).unwrap();
///         }
///     }
/// }
///
/// let (tx, lines) = mpsc::channel();
/// let runtime = Runtime::builder().workers(1).observer(Arc::new(Lines(tx))).build()?;
/// runtime.handle().new_color().post(|| ());
/// assert!(lines.recv().unwrap().ends_with("ended, panicked: false"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Observer: Send + Sync {
    /// Something has happened to a callback.
    fn event(&self, event: &TraceEvent);
}

/// What has happened to a callback. A poll of a task is a callback; so is the turn of one who waits for a state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceEvent {
    /// What it is.
    pub kind: TraceKind,
    /// A number for this one run of a callback, unique in the process.
    pub callback: u64,
    /// The callback that posted it, or that woke the task; `None` if an event of the kernel did, a timer, a thread that is
    /// no worker, or a color that was handed to the task.
    pub cause: Option<u64>,
    /// Its color, as [`Color::id`] tells it.
    pub color_id: u64,
    /// The worker on whose thread it happened; `None` on other threads.
    pub worker: Option<usize>,
    /// The line that posted it; of a task, the line that spawned it.
    pub posted_from: &'static Location<'static>,
    /// When it happened.
    pub at: Instant,
}

/// The kinds of [`TraceEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceKind {
    /// It is about to be queued. When several threads post to one color at once, they may report in another order than
    /// the color accepts.
    Accepted,
    /// It is about to run.
    Started,
    /// It has run.
    Ended {
        /// It ended by a panic, or the task did.
        panicked: bool,
    },
    /// It will not run: the runtime has shut down, or, where a task is to be polled because its wait is over, somebody else
    /// holds its color, and it waits once more.
    Dropped,
}

/// What is known of a traced callback.
pub(crate) struct Record {
    id: u64,
    /// 0 for none.
    cause: u64,
    origin: Origin,
    accepted_at: Instant,
    color_id: u64,
    /// It is a wait: what runs in the end is a closure in line, which counts instead.
    waits: bool,
    /// Alive while a color is: of a node, that in which it is queued or which is held for it.
    shared: *const Shared,
}

/// Who watches a runtime.
pub(crate) struct Watch {
    observer: Option<Arc<dyn Observer>>,
    measures: AtomicBool,
}

/// What the current thread is in, as far as it is traced.
struct Current {
    /// 0 for none.
    callback: Cell<u64>,
    /// The task whose poll it is has panicked.
    panicked: Cell<bool>,
    /// Time that callbacks nested in it have taken.
    nested_ns: Cell<u64>,
    /// What is posted is not traced: an observer is being called, for one.
    silent: Cell<bool>,
}

impl Current {
    const fn new() -> Current {
        Current {
            callback: Cell::new(0),
            panicked: Cell::new(false),
            nested_ns: Cell::new(0),
            silent: Cell::new(false),
        }
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
thread_local! {
    static CURRENT: Current = const { Current::new() };
}

#[cfg(any(dapple_loom, dapple_shuttle))]
thread_local! {
    static CURRENT: Current = Current::new();
}

/// Reasons to watch, in all runtimes of the process: a post looks here first, as this needs no way to its runtime.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// The number of the next traced callback. Not per runtime: a callback of one may post to another.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Watch {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>, measures: bool) -> Watch {
        // Relaxed here and below: whoever posts has heard of the runtime in a way that orders, or may as well be late.
        WATCHES.fetch_add(usize::from(observer.is_some()) + usize::from(measures), Relaxed);
        Watch { observer, measures: AtomicBool::new(measures) }
    }

    pub(crate) fn set_measures(&self, on: bool) {
        context::end_direct();
        match (self.measures.swap(on, Relaxed), on) {
            (false, true) => drop(WATCHES.fetch_add(1, Relaxed)),
            (true, false) => drop(WATCHES.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    fn wants(&self) -> bool {
        self.observer.is_some() || self.measures.load(Relaxed)
    }

    /// Calls the observer, if there is one.
    fn tell(&self, kind: TraceKind, record: &Record, at: Instant) {
        let Some(observer) = &self.observer else { return };
        let event = TraceEvent {
            kind,
            callback: record.id,
            cause: Some(record.cause).filter(|&cause| cause != 0),
            color_id: record.color_id,
            worker: context::with_worker(|worker| worker.index),
            posted_from: record.origin,
            at,
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| untraced(|| observer.event(&event)))) {
            crate::runtime::panics::discard(payload);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.set_measures(false);
        WATCHES.fetch_sub(usize::from(self.observer.is_some()), Relaxed);
    }
}

/// Whether somebody may want to know of a post.
#[inline]
pub(crate) fn is_on() -> bool {
    WATCHES.load(Relaxed) != 0
}

/// A callback is about to be queued.
#[cold]
pub(crate) fn accepted(cell: &ColorCell, node: &Node) {
    if let Ok(origin) = node.origin()
        && let Some(record) = accept(cell, origin)
    {
        node.set_origin(Err(record));
    }
}

/// The record of something that is about to be queued, if somebody wants to know of it.
#[cold]
pub(crate) fn accept(cell: &ColorCell, origin: Origin) -> Option<NonNull<Record>> {
    let watch = &cell.shared().watch;
    let (cause, silent) = CURRENT.with(|current| (current.callback.get(), current.silent.get()));
    if silent || !watch.wants() {
        return None;
    }
    // Relaxed: a number.
    let id = NEXT_ID.fetch_add(1, Relaxed);
    let record =
        Record { id, cause, origin, accepted_at: measured_now(), color_id: cell.id, waits: false, shared: cell.shared };
    watch.tell(TraceKind::Accepted, &record, record.accepted_at);
    Some(block::alloc(record))
}

/// Posts made in `f` are not traced.
pub(crate) fn untraced<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with(|current| current.silent.set(self.0));
        }
    }
    let _restore = Restore(CURRENT.with(|current| current.silent.replace(true)));
    f()
}

/// A callback is dropped without having run.
pub(crate) fn dropped(node: &OwnedNode) {
    take_from(node).into_iter().for_each(Record::tell_dropped);
}

/// A wait has been reached without a turn: its color is held for it now.
pub(crate) fn reached(node: &OwnedNode) {
    if let Some(record) = take_from(node) {
        let now = measured_now();
        let watch = record.watch();
        watch.tell(TraceKind::Started, &record, now);
        watch.tell(TraceKind::Ended { panicked: false }, &record, now);
    }
}

/// Takes a node's record, if it is traced.
pub(crate) fn take_from(node: &OwnedNode) -> Option<Record> {
    let record = node.origin().err()?;
    // SAFETY: the node is its owner's; a record was put there by `accepted`, and is taken out once, as the origin that it
    // held replaces it.
    let record = unsafe { take(record) };
    node.set_origin(Ok(record.origin));
    Some(Record { waits: node.vtable().waits.is_some(), ..record })
}

/// Takes a record out of its memory.
///
/// # Safety
/// It came from [`accept`], and is not used again.
pub(crate) unsafe fn take(at: NonNull<Record>) -> Record {
    // SAFETY: promised by the caller.
    unsafe {
        let record = at.read();
        block::free(at);
        record
    }
}

impl Record {
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// What it stands for will not run.
    pub(crate) fn tell_dropped(self) {
        self.watch().tell(TraceKind::Dropped, &self, measured_now());
    }

    fn watch(&self) -> &Watch {
        // SAFETY: what was accepted keeps its color until it has run or was dropped, and that the runtime.
        unsafe { &(*self.shared).watch }
    }
}

impl Worker {
    /// Runs what is traced, in a color that this worker runs.
    pub(crate) fn run_traced(&self, color: Option<ColorRef<'_>>, record: &Record, run: impl FnOnce()) {
        // The turn may be over before the callback is, and the color forgotten.
        // SAFETY: the turn keeps the cell alive so far.
        let color = color.map(|color| unsafe { Color::retain(color.ptr()) });
        self.slot().set_origin(record.origin);
        let watch = &self.shared.watch;
        let started = measured_now();
        watch.tell(TraceKind::Started, record, started);
        let outer = CURRENT.with(|current| current.enter(record.id));
        let result = catch_unwind(AssertUnwindSafe(run));
        let ended = measured_now();
        let took_ns = (ended - started).as_nanos() as u64;
        let (panicked, nested_ns) = CURRENT.with(|current| current.leave(outer, took_ns));
        if watch.measures.load(Relaxed) {
            let wait_ns = (started - record.accepted_at).as_nanos() as u64;
            let run_ns = took_ns.saturating_sub(nested_ns);
            let count = u64::from(!record.waits);
            self.slot().counters.measured(count, wait_ns, run_ns);
            color.iter().for_each(|color| color.alive().ext.get_or_make().times.add(count, wait_ns, run_ns));
        }
        watch.tell(TraceKind::Ended { panicked: panicked || result.is_err() }, record, ended);
        drop(color);
        if let Err(payload) = result {
            resume_unwind(payload);
        }
    }
}

/// Runs a closure in line. While times are measured, what it takes counts for each color that it holds, and not for the
/// callback that it is called in.
#[inline]
pub(crate) fn in_line<'c, R>(colors: impl Iterator<Item = ColorRef<'c>> + Clone, f: impl FnOnce() -> R) -> R {
    if is_on() { in_line_watched(colors, f) } else { f() }
}

#[cold]
fn in_line_watched<'c, R>(colors: impl Iterator<Item = ColorRef<'c>> + Clone, f: impl FnOnce() -> R) -> R {
    struct Measured<'c, I: Iterator<Item = ColorRef<'c>> + Clone> {
        colors: I,
        started: Instant,
        /// What has been nested in the callback further out before.
        outer_ns: u64,
    }
    impl<'c, I: Iterator<Item = ColorRef<'c>> + Clone> Drop for Measured<'c, I> {
        fn drop(&mut self) {
            let took_ns = self.started.elapsed().as_nanos() as u64;
            let nested_ns = CURRENT.with(|current| current.nested_ns.replace(self.outer_ns.saturating_add(took_ns)));
            let run_ns = took_ns.saturating_sub(nested_ns);
            context::with_worker(|worker| worker.slot().counters.measured(1, 0, run_ns));
            self.colors.clone().for_each(|color| color.ext.get_or_make().times.add(1, 0, run_ns));
        }
    }
    // All colors of a set are of one runtime.
    let measures = colors.clone().next().is_some_and(|color| color.shared().watch.measures.load(Relaxed));
    if !measures {
        return f();
    }
    let outer_ns = CURRENT.with(|current| current.nested_ns.replace(0));
    let _measured = Measured { colors, started: measured_now(), outer_ns };
    f()
}

/// A task has panicked in its poll, which goes on as if nothing had happened.
pub(crate) fn note_panic() {
    CURRENT.with(|current| current.panicked.set(true));
}

impl Current {
    /// A callback begins; returns what the thread was in.
    fn enter(&self, callback: u64) -> (u64, bool, u64) {
        (self.callback.replace(callback), self.panicked.replace(false), self.nested_ns.replace(0))
    }

    /// It has ended: whether a task has panicked in it, and how much of its time was that of others.
    fn leave(&self, outer: (u64, bool, u64), took_ns: u64) -> (bool, u64) {
        let (callback, panicked, nested_ns) = outer;
        self.callback.set(callback);
        (self.panicked.replace(panicked), self.nested_ns.replace(nested_ns.saturating_add(took_ns)))
    }
}
