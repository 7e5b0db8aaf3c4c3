//! Tracing of single callbacks: events for an [`Observer`], and exact times.
//!
//! Without a trace, a post costs one branch, and the run of a callback another, on the node's word
//! with the place that posted it. During a trace, a post makes a [`Record`], and that word holds
//! the record's address with the lowest bit set, until the callback is run or dropped. So only
//! traced callbacks cost anything, and nothing has to be cleared when tracing ends.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::color::Color;
use crate::color::cell::ColorCell;
use crate::color::node::{Node, Origin, OwnedNode};
use crate::color::rights::ColorRef;
use crate::memory::block;
use crate::observe::label::Label;
use crate::observe::ticks::Ticks;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::thread_local;
use crate::worker::Worker;

/// Receives every event of a runtime's callbacks; see [`crate::Builder::observer`].
///
/// The runtime calls it in place: on workers in the middle of their work, and on every thread that
/// posts. So it must not block, and should only count, or write to a buffer. Its own posts are not
/// traced. A panic in it is swallowed. It belongs to the runtime: a color or a handle that it keeps
/// would keep the runtime for ever.
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
    /// Reports an event.
    fn event(&self, event: &TraceEvent);

    /// Whether the runtime may leave out events of the kind [`Accepted`](TraceKind::Accepted), so
    /// that a post costs less: all events have [`accepted_at`](TraceEvent::accepted_at). The
    /// runtime asks when it is told to observe. Default: no.
    fn skips_accepted(&self) -> bool {
        false
    }

    /// Reports the begin of a callback, in place of [`event`](Observer::event). The result comes
    /// back with the end, on the same thread. Default: calls `event`, and returns 0.
    fn started(&self, event: &TraceEvent) -> u64 {
        self.event(event);
        0
    }

    /// Reports the end of a callback, in place of [`event`](Observer::event), with the result of
    /// [`started`](Observer::started); 0 if that was not called. Default: calls `event`.
    fn ended(&self, event: &TraceEvent, started: u64) {
        let _ = started;
        self.event(event);
    }
}

/// An event of a callback. A poll of a task is a callback; so is the turn of a waiter for a state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The kind of event.
    pub kind: TraceKind,
    /// A number for this one run of a callback, unique in the process.
    pub callback: u64,
    /// The callback that posted it, or that woke the task. `None` if the cause was an event of the
    /// kernel, a timer, a thread that is not a worker, or the handover of a color to the task.
    pub cause: Option<u64>,
    /// Its color, as [`Color::id`] tells it.
    pub color_id: u64,
    /// The worker that it happened on; `None` on other threads.
    pub worker: Option<usize>,
    /// The line that posted it, or that spawned the task.
    pub posted_from: &'static Location<'static>,
    /// When the callback was accepted; of a closure in line, when it began.
    pub accepted_at: Instant,
    /// It holds several colors, and begins when it has all of them; `color_id` is one of them.
    pub several: bool,
    /// The color's label, as [`Color::set_label`] has made it before the callback was accepted.
    pub label: Option<Label>,
    /// The time of the event. A callback that follows another one in the same turn begins when
    /// that one ends.
    pub at: Instant,
}

/// The kinds of [`TraceEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceKind {
    /// It is about to be queued. Threads that post to one color at the same time may report in
    /// another order than the color accepts.
    Accepted,
    /// It is about to run.
    Started,
    /// It has run.
    Ended {
        /// It, or the task, ended by a panic.
        panicked: bool,
    },
    /// A closure has run with a state, in line: in a callback (the [`cause`](TraceEvent::cause)), or on a thread that is
    /// no worker. There is one event for each color that it held; `posted_from` is the line that made the state.
    InLine {
        /// When the closure began; the event's own time is its end.
        started: Instant,
        /// It reads the state, at the same time as other readers.
        reads: bool,
    },
    /// A request has been answered, or dropped: see [`note_request`](crate::note_request). The [`cause`](TraceEvent::cause)
    /// is the callback in which it ended, and `color_id` has no meaning.
    Request(RequestNote),
    /// It will not run: the runtime has shut down. Or the task was polled because its wait was
    /// over, and has to wait once more because its color has another holder.
    Dropped,
}

/// A request from its begin to its end, for [`note_request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestNote {
    /// The trace that it belongs to: the same on all machines.
    pub trace_id: u128,
    /// Its part of the trace.
    pub span_id: u64,
    /// The part of its sender; 0 if it is the first one.
    pub parent_id: u64,
    /// The callback in which it began, as [`running_callback`] told it then.
    pub first: u64,
    /// When it began.
    pub started: Instant,
}

/// Whether an observer, or a measurement, is on in the process: one load, for libraries that have something to note.
pub fn is_observed() -> bool {
    is_on()
}

/// The number of the running callback, as in [`TraceEvent::callback`]; 0 if it is not traced.
pub fn running_callback() -> u64 {
    CURRENT.with(|current| current.callback.get())
}

/// Tells the runtime's observer of a request that has ended. Does nothing on a thread that is not a worker, and while the
/// observer is off.
///
/// ```
/// use dapple_sched::{RequestNote, note_request, running_callback};
/// use std::time::Instant;
///
/// let (first, started) = (running_callback(), Instant::now());
/// // ... the request is answered, perhaps in other callbacks ...
/// note_request(RequestNote { trace_id: 1, span_id: 2, parent_id: 0, first, started });
/// ```
pub fn note_request(note: RequestNote) {
    if !is_on() {
        return;
    }
    let (cause, silent) = CURRENT.with(|current| (current.callback.get(), current.silent.get()));
    context::with_worker(|worker| {
        let watch = &worker.shared.watch;
        let Some(origin) = worker.slot().origin().filter(|_| !silent) else { return };
        let id = CURRENT.with(Current::new_id);
        let record = Record {
            id,
            cause,
            origin,
            accepted_at: note.started,
            color_id: 0,
            waits: false,
            several: false,
            label: 0,
            shared: &*worker.shared,
        };
        watch.tell(TraceKind::Request(note), &record, watch.ticks.now());
    });
}

/// The data of a traced callback.
pub(crate) struct Record {
    id: u64,
    /// 0 for none.
    cause: u64,
    origin: Origin,
    accepted_at: Instant,
    color_id: u64,
    /// The node is that of a wait. A closure runs in line when the wait ends, and is counted
    /// instead of the node.
    waits: bool,
    /// It holds several colors.
    several: bool,
    /// The number of the color's label, or 0.
    label: u32,
    /// Alive while its color is: the color in which the node is queued, or which is held for it.
    shared: *const Shared,
}

/// The observers of a runtime.
pub(crate) struct Watch {
    /// Set once: other threads may be calling it at any time.
    observer: OnceLock<Arc<dyn Observer>>,
    observes: AtomicBool,
    /// The observer does without [`TraceKind::Accepted`].
    skips_accepted: AtomicBool,
    measures: AtomicBool,
    ticks: Ticks,
}

/// The runtime has an observer already, and keeps it as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HasObserver;

impl fmt::Display for HasObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the runtime has an observer already, and keeps it as long as it lives")
    }
}

impl std::error::Error for HasObserver {}

/// The traced callback of the current thread.
struct Current {
    /// 0 for none.
    callback: Cell<u64>,
    /// The task that it polls has panicked.
    panicked: Cell<bool>,
    /// The time that nested callbacks have taken.
    nested_ns: Cell<u64>,
    /// Posts are not traced, for example because an observer is being called.
    silent: Cell<bool>,
    /// The line that made the state of the closure in line, once that is known.
    state: Cell<Option<Origin>>,
    /// The next number for a callback; a multiple of [`IDS`] if there is none left.
    next_id: Cell<u64>,
    /// When the last callback of this turn ended.
    last_end: Cell<Option<Instant>>,
}

impl Current {
    const fn new() -> Current {
        Current {
            callback: Cell::new(0),
            panicked: Cell::new(false),
            nested_ns: Cell::new(0),
            silent: Cell::new(false),
            state: Cell::new(None),
            next_id: Cell::new(0),
            last_end: Cell::new(None),
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

/// The number of reasons to trace, in all runtimes of the process: a post reads this first, because
/// that needs no access to its runtime.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// The next numbers for traced callbacks. Each thread takes [`IDS`] of them at a time, so that
/// workers share no cache line. Not per runtime: a callback of one runtime may post to another.
static NEXT_IDS: AtomicU64 = AtomicU64::new(IDS);

const IDS: u64 = 1 << 12;

impl Watch {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>, measures: bool) -> Watch {
        // Relaxed here and below: a poster has learned of the runtime through an ordered access;
        // otherwise it may miss the change.
        WATCHES.fetch_add(usize::from(observer.is_some()) + usize::from(measures), Relaxed);
        let observes = AtomicBool::new(observer.is_some());
        let skips_accepted = AtomicBool::new(observer.as_ref().is_some_and(|observer| observer.skips_accepted()));
        let observer = observer.map_or_else(OnceLock::new, OnceLock::from);
        Watch { observer, observes, skips_accepted, measures: AtomicBool::new(measures), ticks: Ticks::new() }
    }

    pub(crate) fn set_observer(&self, observer: Arc<dyn Observer>) -> Result<(), HasObserver> {
        self.observer.set(observer).map_err(|_| HasObserver)
    }

    pub(crate) fn set_observes(&self, on: bool) {
        if on {
            self.ticks.measure();
        }
        let observer = self.observer.get();
        self.skips_accepted.store(observer.is_some_and(|observer| observer.skips_accepted()), Relaxed);
        Watch::switch(&self.observes, on && observer.is_some());
    }

    pub(crate) fn set_measures(&self, on: bool) {
        Watch::switch(&self.measures, on);
    }

    fn switch(switch: &AtomicBool, on: bool) {
        context::end_direct();
        match (switch.swap(on, Relaxed), on) {
            (false, true) => drop(WATCHES.fetch_add(1, Relaxed)),
            (true, false) => drop(WATCHES.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }

    fn wants(&self) -> bool {
        self.observes.load(Relaxed) || self.measures.load(Relaxed)
    }

    /// Calls the observer, if there is one.
    fn tell(&self, kind: TraceKind, record: &Record, at: Instant) {
        self.call(kind, record, at, |observer, event| observer.event(event));
    }

    /// Reports the begin of a callback; returns the observer's word for its end.
    fn tell_started(&self, record: &Record, at: Instant) -> u64 {
        self.call(TraceKind::Started, record, at, |observer, event| observer.started(event)).unwrap_or(0)
    }

    fn tell_ended(&self, panicked: bool, record: &Record, at: Instant, started: u64) {
        self.call(TraceKind::Ended { panicked }, record, at, |observer, event| observer.ended(event, started));
    }

    #[inline]
    fn call<R>(
        &self,
        kind: TraceKind,
        record: &Record,
        at: Instant,
        call: impl FnOnce(&dyn Observer, &TraceEvent) -> R,
    ) -> Option<R> {
        let observer = self.observer.get().filter(|_| self.observes.load(Relaxed))?;
        let event = TraceEvent {
            kind,
            callback: record.id,
            cause: Some(record.cause).filter(|&cause| cause != 0),
            color_id: record.color_id,
            worker: context::with_worker(|worker| worker.index),
            posted_from: record.origin,
            accepted_at: record.accepted_at,
            several: record.several,
            label: Label::known(record.label),
            at,
        };
        match catch_unwind(AssertUnwindSafe(|| untraced(|| call(&**observer, &event)))) {
            Ok(result) => Some(result),
            Err(payload) => {
                crate::runtime::panics::discard(payload);
                None
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.set_measures(false);
        self.set_observes(false);
    }
}

/// Whether a post may have to be traced.
#[inline]
pub(crate) fn is_on() -> bool {
    WATCHES.load(Relaxed) != 0
}

/// A callback is about to be queued.
#[cold]
pub(crate) fn accepted(cell: &ColorCell, node: &Node) {
    if let Ok(origin) = node.origin()
        && let Some(record) = accept(cell, origin, false)
    {
        node.set_origin(Err(record));
    }
}

/// The record of a node that is about to be queued, if it has to be traced.
#[cold]
pub(crate) fn accept(cell: &ColorCell, origin: Origin, several: bool) -> Option<NonNull<Record>> {
    let watch = &cell.shared().watch;
    let (cause, silent) = CURRENT.with(|current| (current.callback.get(), current.silent.get()));
    if silent || !watch.wants() {
        return None;
    }
    let id = CURRENT.with(Current::new_id);
    let record = Record {
        id,
        cause,
        origin,
        accepted_at: watch.ticks.now(),
        color_id: cell.id,
        waits: false,
        several,
        label: cell.ext.label(),
        shared: cell.shared,
    };
    if !watch.skips_accepted.load(Relaxed) {
        watch.tell(TraceKind::Accepted, &record, record.accepted_at);
    }
    Some(block::alloc(record))
}

/// Runs `f`; its posts are not traced.
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
        let watch = record.watch();
        let now = watch.ticks.now();
        let told = watch.tell_started(&record, now);
        watch.tell_ended(false, &record, now, told);
    }
}

/// Takes a node's record, if it is traced.
pub(crate) fn take_from(node: &OwnedNode) -> Option<Record> {
    let record = node.origin().err()?;
    // SAFETY: the node is its owner's. `accepted` put the record there, and it is taken out once,
    // because then the origin that the record held replaces it.
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

    /// Reports that the callback will not run.
    pub(crate) fn tell_dropped(self) {
        let watch = self.watch();
        watch.tell(TraceKind::Dropped, &self, watch.ticks.now());
    }

    fn watch(&self) -> &Watch {
        // SAFETY: an accepted callback keeps its color until it has run or was dropped, and the
        // color keeps the runtime.
        unsafe { &(*self.shared).watch }
    }
}

impl Worker {
    /// Runs a traced callback, in a color that this worker runs.
    pub(crate) fn run_traced(&self, color: Option<ColorRef<'_>>, record: &Record, run: impl FnOnce()) {
        let watch = &self.shared.watch;
        let measures = watch.measures.load(Relaxed);
        let in_turn = color.is_some_and(|color| self.frame.color() == Some(color.ptr()));
        // The turn may end before the callback does, and the color may then be freed. SAFETY: the
        // turn keeps the cell alive so far.
        let color = color.filter(|_| measures).map(|color| unsafe { Color::retain(color.ptr()) });
        self.slot().set_origin(record.origin);
        let started = CURRENT.with(|current| current.begin(in_turn, watch, record.accepted_at));
        let told = watch.tell_started(record, started);
        let outer = CURRENT.with(|current| current.enter(record.id));
        let result = catch_unwind(AssertUnwindSafe(run));
        let ended = watch.ticks.now();
        let took_ns = (ended - started).as_nanos() as u64;
        let (panicked, nested_ns) = CURRENT.with(|current| current.leave(outer, took_ns));
        if measures {
            let wait_ns = (started - record.accepted_at).as_nanos() as u64;
            let run_ns = took_ns.saturating_sub(nested_ns);
            let count = u64::from(!record.waits);
            self.slot().counters.measured(count, wait_ns, run_ns);
            color.iter().for_each(|color| color.alive().ext.get_or_make().times.add(count, wait_ns, run_ns));
        }
        watch.tell_ended(panicked || result.is_err(), record, ended, told);
        CURRENT.with(|current| current.last_end.set(Some(ended).filter(|_| in_turn && outer.0 == 0)));
        drop(color);
        if let Err(payload) = result {
            resume_unwind(payload);
        }
    }
}

/// Runs a closure in line. While times are measured, its time counts for each color that it holds,
/// and not for the callback that calls it.
#[inline]
pub(crate) fn in_line<'c, R>(colors: impl Iterator<Item = ColorRef<'c>> + Clone, f: impl FnOnce() -> R) -> R {
    if is_on() { in_line_watched(colors, false, f) } else { f() }
}

/// As [`in_line`], as one of the readers of the color.
#[inline]
pub(crate) fn reading<R>(color: ColorRef<'_>, f: impl FnOnce() -> R) -> R {
    if is_on() { in_line_watched(std::iter::once(color), true, f) } else { f() }
}

#[cold]
fn in_line_watched<'c, R>(colors: impl Iterator<Item = ColorRef<'c>> + Clone, reads: bool, f: impl FnOnce() -> R) -> R {
    struct Measured<'c, I: Iterator<Item = ColorRef<'c>> + Clone> {
        colors: I,
        reads: bool,
        started: Instant,
        /// The nested time of the outer callback so far, and the state of the closure around this one.
        outer_ns: u64,
        outer_state: Option<Origin>,
    }
    impl<'c, I: Iterator<Item = ColorRef<'c>> + Clone> Drop for Measured<'c, I> {
        fn drop(&mut self) {
            let Some(first) = self.colors.clone().next() else { return };
            let watch = &first.shared().watch;
            let ended = watch.ticks.now();
            let made_from = CURRENT.with(|current| current.state.replace(self.outer_state));
            if let Some(made_from) = made_from {
                self.colors.clone().for_each(|color| tell_in_line(color, self.reads, made_from, self.started, ended));
            }
            let took_ns = (ended - self.started).as_nanos() as u64;
            let nested_ns = CURRENT.with(|current| current.nested_ns.replace(self.outer_ns.saturating_add(took_ns)));
            if !watch.measures.load(Relaxed) {
                return;
            }
            let run_ns = took_ns.saturating_sub(nested_ns);
            context::with_worker(|worker| worker.slot().counters.measured(1, 0, run_ns));
            self.colors.clone().for_each(|color| color.ext.get_or_make().times.add(1, 0, run_ns));
        }
    }
    // All colors of a set are of one runtime.
    let Some(first) = colors.clone().next().filter(|color| color.shared().watch.wants()) else { return f() };
    let started = first.shared().watch.ticks.now();
    let outer_state = CURRENT.with(|current| current.state.take());
    let outer_ns = CURRENT.with(|current| current.nested_ns.replace(0));
    let _measured = Measured { colors, reads, started, outer_ns, outer_state };
    f()
}

/// The state made at this line is being used by the closure that runs in line.
#[inline]
pub(crate) fn note_state(made_from: Origin) {
    if is_on() {
        CURRENT.with(|current| current.state.set(Some(made_from)));
    }
}

/// A closure in line has ended.
fn tell_in_line(color: ColorRef<'_>, reads: bool, made_from: Origin, started: Instant, ended: Instant) {
    let (cause, silent) = CURRENT.with(|current| (current.callback.get(), current.silent.get()));
    if silent {
        return;
    }
    let id = CURRENT.with(Current::new_id);
    let shared = color.shared;
    let record = Record {
        id,
        cause,
        origin: made_from,
        accepted_at: started,
        color_id: color.id,
        waits: false,
        several: false,
        label: color.ext.label(),
        shared,
    };
    color.shared().watch.tell(TraceKind::InLine { started, reads }, &record, ended);
}

/// Notes that a task has panicked in its poll; the poll itself continues normally.
pub(crate) fn note_panic() {
    CURRENT.with(|current| current.panicked.set(true));
}

/// A turn begins.
#[cold]
pub(crate) fn begin_turn() {
    CURRENT.with(|current| current.last_end.set(None));
}

impl Current {
    /// A number for a callback.
    fn new_id(&self) -> u64 {
        let mut id = self.next_id.get();
        if id.is_multiple_of(IDS) {
            // Relaxed: numbers.
            id = NEXT_IDS.fetch_add(IDS, Relaxed);
        }
        self.next_id.set(id + 1);
        id
    }

    /// The begin of a callback: the end of the one before it in the same turn, which saves a clock
    /// reading; but a callback begins after it was accepted.
    fn begin(&self, in_turn: bool, watch: &Watch, accepted_at: Instant) -> Instant {
        match self.last_end.take().filter(|_| in_turn) {
            Some(last_end) => last_end.max(accepted_at),
            None => watch.ticks.now(),
        }
    }

    /// Begins a callback; returns the former state of the thread.
    fn enter(&self, callback: u64) -> (u64, bool, u64) {
        (self.callback.replace(callback), self.panicked.replace(false), self.nested_ns.replace(0))
    }

    /// Ends it; returns whether a task has panicked in it, and how much of its time went to nested
    /// callbacks.
    fn leave(&self, outer: (u64, bool, u64), took_ns: u64) -> (bool, u64) {
        let (callback, panicked, nested_ns) = outer;
        self.callback.set(callback);
        (self.panicked.replace(panicked), self.nested_ns.replace(nested_ns.saturating_add(took_ns)))
    }
}
