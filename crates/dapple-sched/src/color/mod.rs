//! Colors: the public handle (this file), a color in memory (`cell`), and the nodes of its queues
//! (`node`).
//!
//! Imports from below: `sync`, `memory`. The handle has functions that post, hold and spawn, and
//! uses modules above for them. Begin with the tables in `cell`; then read `node`, and `rights`,
//! which has types for a thread's rights to a color.

pub(crate) mod cell;
pub(crate) mod ext;
pub(crate) mod holder;
pub(crate) mod node;
pub(crate) mod registry;
pub(crate) mod rights;

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::color::cell::{ColorCell, Kind, Links};
use crate::color::ext::Ext;
use crate::color::node::{Origin, closure_node, try_closure_node};
use crate::color::rights::ColorRef;
use crate::environment;
use crate::hold;
use crate::observe::label::Label;
use crate::post::callback::{Callback, Posted};
use crate::post::{accept_callback, place};
use crate::runtime::Handle;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::sync::refs;
use crate::task::{self, JoinHandle, Start};

/// A value that identifies work that must not overlap. Callbacks of one color run one at a time and
/// in order, callbacks of different colors in parallel.
///
/// A `Color` is a handle, and a clone names the same color. The runtime forgets the color when its
/// last handle is gone and nothing is queued. A color belongs to the runtime in which its handle
/// was made ([`Handle::current`]); [`Color::DEFAULT`] belongs to the runtime that is current at
/// each use.
///
/// A queued callback costs a list node of 64 bytes; an idle color, at most 128 bytes.
///
/// ```
/// use dapple_sched::{Color, Runtime};
/// use std::sync::mpsc;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let _entered = runtime.enter();
/// let (tx, rx) = mpsc::channel();
/// let color = Color::new();
/// for n in 0..3 {
///     let tx = tx.clone();
///     color.post(move || tx.send(n).unwrap());
/// }
/// drop(tx);
/// assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 1, 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Source
///
/// The thesis, section 3.1.
pub struct Color {
    /// `None`: the default color of the runtime that is current when the handle is used.
    cell: Option<NonNull<ColorCell>>,
}

// SAFETY: the cell is `Sync`, and alive while a handle is.
unsafe impl Send for Color {}
// SAFETY: as above.
unsafe impl Sync for Color {}

/// A hint at which runnable color goes first, never a promise (thesis, section 3.4).
///
/// A color ranks by the highest priority that waits in it; among equals the oldest goes first.
/// Priorities order colors, never the callbacks of one color (C2), and only within a worker: each
/// worker looks at its own run queue. Workers regularly serve a lower level, so that none starves
/// (C7). A program must not depend on the order.
///
/// Use it to **start the color with the most work first**, because its callbacks cannot run in
/// parallel with each other. Take four callbacks of equal length on two workers. Callbacks 1 and 2
/// have colors of their own; 3 and 4 have the default color, as in a program with few colors yet
/// (Figure 3-4):
///
/// ```text
///   without priorities          with a higher priority for 3 and 4
///   worker 0   1  3  4          worker 0   3  4
///   worker 1   2                worker 1   1  2
///   time       1  2  3          time       1  2
/// ```
///
/// ```
/// use dapple_sched::Priority;
///
/// assert!(Priority::NORMAL < Priority::new(3));
/// assert_eq!(Priority::new(200), Priority::HIGHEST);
///
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::Color;
/// use std::sync::mpsc;
///
/// let (tx, rx) = mpsc::channel();
/// // Posted by a callback, so that both wait before either runs.
/// Color::new().post(move || {
///     let tx2 = tx.clone();
///     Color::new().post(move || tx.send("colored").unwrap());
///     Color::DEFAULT.post_with(Priority::new(1), move || tx2.send("not colored yet").unwrap());
/// });
/// assert_eq!(rx.recv(), Ok("not colored yet")); // on one worker; a second one could take the other
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(u8);

impl Priority {
    /// The priority of callbacks that name none: 0.
    pub const NORMAL: Priority = Priority(0);

    /// The highest: 7.
    pub const HIGHEST: Priority = Priority(7);

    /// A priority from 0 to 7; a higher level counts as 7.
    pub const fn new(level: u8) -> Priority {
        Priority(if level > 7 { 7 } else { level })
    }

    /// From 0 to 7.
    pub const fn level(self) -> u8 {
        self.0
    }
}

/// The reason why a callback was not accepted; it holds the closure, which has not run.
#[non_exhaustive]
pub enum PostError<F> {
    /// The queue has as many callbacks as the color's capacity allows ([`Color::set_capacity`]).
    Full(F),
    /// The runtime has shut down.
    ShutDown(F),
}

impl<F> PostError<F> {
    /// The closure, for the caller to run or keep.
    pub fn into_inner(self) -> F {
        match self {
            PostError::Full(closure) | PostError::ShutDown(closure) => closure,
        }
    }
}

impl<F> fmt::Debug for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full(_) => "Full(..)",
            PostError::ShutDown(_) => "ShutDown(..)",
        })
    }
}

impl<F> fmt::Display for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full(_) => "the color's queue is full: run the callback later, or tell its sender to slow down",
            PostError::ShutDown(_) => "the color's runtime has shut down",
        })
    }
}

impl<F> std::error::Error for PostError<F> {}

impl Color {
    /// The color of callbacks that name none (C3). Each runtime has its own; this handle means the
    /// current runtime's.
    pub const DEFAULT: Color = Color { cell: None };

    /// A fresh color, equal to no other. Made on a worker, it is at home there.
    ///
    /// # Panics
    /// If no runtime is current; see [`Handle::current`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// assert_ne!(Color::new(), Color::new());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Color {
        Handle::current().new_color()
    }

    /// The color of that name: any number, such as a descriptor or an address. 0 is the default
    /// color, as in the papers. Two parts of a program that choose the same number share a color,
    /// which only costs parallelism.
    ///
    /// The look-up happens here, not at each post: keep the handle.
    ///
    /// # Panics
    /// If no runtime is current; see [`Handle::current`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// assert_eq!(Color::named(7), Color::named(7));
    /// assert_eq!(Color::named(0), Color::DEFAULT);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn named(name: u64) -> Color {
        Handle::current().named_color(name)
    }

    /// The color of a key, by hash. Equal keys have one color; keys that happen to hash alike share
    /// one, which only costs parallelism.
    ///
    /// # Panics
    /// If no runtime is current; see [`Handle::current`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let document = Color::of("report.txt");
    /// assert_eq!(document, Color::of("report.txt"));
    /// assert!(!document.is_default());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of<K: Hash + ?Sized>(key: &K) -> Color {
        // Seeded per process: outsiders that choose keys cannot make them collide. A simulation has no outsiders.
        static SEED: OnceLock<environment::RandomState> = OnceLock::new();
        let hash = match environment::is_simulated() {
            true => BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
            false => SEED.get_or_init(environment::RandomState::default).hash_one(key),
        };
        // Not 0, which is the default color.
        Color::named(hash.max(1))
    }

    /// The color that the running callback holds; the innermost if it holds several. Outside of
    /// callbacks, the default color.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let color = Color::new();
    /// let task = color.spawn(async { Color::current() });
    /// assert_eq!(runtime.block_on(task).unwrap(), color);
    /// assert_eq!(Color::current(), Color::DEFAULT);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current() -> Color {
        match context::current_color() {
            // SAFETY: the running color is alive.
            Some(cell) => unsafe { Color::retain(cell) },
            None => Color::DEFAULT,
        }
    }

    /// A number for display: the name of a named color, a serial number for a fresh one, 0 for the
    /// default. No two living fresh colors have the same number; a new color may get that of one
    /// that has ended.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// assert_eq!(Color::named(7).id(), 7);
    /// assert_eq!(Color::DEFAULT.id(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        // SAFETY: a handle keeps its cell alive.
        self.cell.map_or(0, |cell| unsafe { cell.as_ref() }.id)
    }

    /// Whether this is the default color.
    pub fn is_default(&self) -> bool {
        // SAFETY: a handle keeps its cell alive.
        self.cell.is_none_or(|cell| unsafe { cell.as_ref() }.kind == Kind::Default)
    }

    /// Queues a closure to run in this color (the papers' `cpucb`). The color accepts it at once
    /// and runs it later, after everything that it accepted before. One kind of work goes first:
    /// the poll of a task of this color that was granted what it waited for (see
    /// [`Colored::with`](crate::Colored::with)). The closure runs on a worker and must not block.
    ///
    /// Never refused, whatever the capacity. After shutdown the color drops the closure instead,
    /// while it is held.
    ///
    /// Cost: no locked instruction from the color to itself, nor to a color at home on the same
    /// worker while no other thread needs that worker's queue.
    ///
    /// # Panics
    /// [`Color::DEFAULT`] only: if no runtime is current. A panic in the closure ends only that
    /// callback (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// Color::new().post(move || tx.send("on a worker").unwrap());
    /// assert_eq!(rx.recv(), Ok("on a worker"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn post<F: FnOnce() + Send + 'static>(&self, f: F) {
        self.post_with(Priority::NORMAL, f);
    }

    /// As [`Color::post`], with a priority (the papers' `cpwrap`).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Priority};
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// Color::new().post_with(Priority::HIGHEST, move || tx.send("before others, if it can be").unwrap());
    /// assert!(rx.recv().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn post_with<F: FnOnce() + Send + 'static>(&self, priority: Priority, f: F) {
        self.accept_closure(Location::caller(), priority, f);
    }

    /// As [`Color::post_with`], on behalf of that line of the program.
    #[inline]
    pub(crate) fn accept_closure<F: FnOnce() + Send + 'static>(&self, origin: Origin, priority: Priority, f: F) {
        // This comes first, so that the closure is built in its final place. If it were copied from
        // elsewhere, the processor would read it back before its parts have left the store buffer:
        // 7 ns. Rare work is called at the end, so that a callback that ends with a post need not
        // save registers across it.
        match try_closure_node(priority, origin, f) {
            Ok(node) => accept_callback(self.alive_cell(), node, priority),
            Err(f) => self.accept_slowly(origin, priority, f),
        }
    }

    #[cold]
    #[inline(never)]
    fn accept_slowly<F: FnOnce() + Send + 'static>(&self, origin: Origin, priority: Priority, f: F) {
        let node = closure_node(priority, origin, f);
        accept_callback(self.alive_cell(), node, priority);
    }

    /// The cell; `None` for the default color, if this handle has no cell: it is not looked up
    /// here.
    #[inline]
    fn alive_cell(&self) -> Option<ColorRef<'_>> {
        // SAFETY: the handle keeps the cell alive.
        self.cell.map(|cell| unsafe { ColorRef::new(cell) })
    }

    /// As [`Color::post`], but refuses if the color's queue is at its capacity, or if the runtime
    /// has shut down.
    ///
    /// # Errors
    /// [`PostError`], with the closure in it.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, PostError};
    /// use std::sync::mpsc;
    ///
    /// let color = Color::new();
    /// color.set_capacity(Some(1));
    /// let (open, gate) = mpsc::channel::<()>();
    /// let (started, has_started) = mpsc::channel();
    /// color.try_post(move || {
    ///     started.send(()).unwrap();
    ///     gate.recv().unwrap(); // never block like this outside of an example
    /// })?;
    /// has_started.recv().unwrap();
    /// color.try_post(|| println!("one may wait"))?;
    /// match color.try_post(|| println!("a second may not")) {
    ///     Err(PostError::Full(refused)) => refused(), // here: run it now
    ///     _ => unreachable!(),
    /// }
    /// open.send(()).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn try_post<F: FnOnce() + Send + 'static>(&self, f: F) -> Result<(), PostError<F>> {
        let origin = Location::caller();
        self.with_cell(|color| {
            if color.shared().is_stopping() {
                return Err(PostError::ShutDown(f));
            }
            let Some(counted) = color.ext.get().map_or(Some(false), Ext::try_count) else {
                return Err(PostError::Full(f));
            };
            let node = closure_node(Priority::NORMAL, origin, f);
            if counted {
                node.set_counted();
            }
            place(color, node);
            Ok(())
        })
    }

    /// As [`Color::post`], and returns a handle that can cancel the callback.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let color = Color::new();
    /// let posted = color.post_cancellable(|| println!("too late"));
    /// if posted.cancel() {
    ///     println!("it will not run");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn post_cancellable<F: FnOnce() + Send + 'static>(&self, f: F) -> Posted {
        let (posted, closure) = Posted::new(f);
        self.post(closure);
        posted
    }

    /// Wraps a closure once, for code that need not know its color (the papers' `cwrap`). Each
    /// [`Callback::call`] posts a run of it to this color.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Callback, Color};
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let mut total = 0;
    /// let add: Callback<u32> = Color::new().wrap(move |n| {
    ///     total += n; // one call at a time
    ///     tx.send(total).unwrap();
    /// });
    /// add.call(1);
    /// add.call(2);
    /// assert_eq!((rx.recv(), rx.recv()), (Ok(1), Ok(3)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wrap<A: Send + 'static, F: FnMut(A) + Send + 'static>(&self, f: F) -> Callback<A> {
        self.wrap_with(Priority::NORMAL, f)
    }

    /// As [`Color::wrap`], with a priority (the papers' `cpwrap`).
    #[track_caller]
    pub fn wrap_with<A: Send + 'static, F: FnMut(A) + Send + 'static>(&self, priority: Priority, f: F) -> Callback<A> {
        Callback::new(self.resolved(), priority, Location::caller(), f)
    }

    /// Starts a task of this color: each poll runs as a callback of it. `Color::DEFAULT.spawn`
    /// gives the papers' behavior: the task overlaps with no work that names no color.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let task = Color::DEFAULT.spawn(async { 6 * 7 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(Start::Colored(self.clone()), false, Location::caller(), future)
    }

    /// As [`Color::spawn`], for a task that only serves others, for example by passing on a
    /// device's reports. It does not count as live: a graceful shutdown does not wait for it.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    /// use std::time::Duration;
    ///
    /// let _endless = Color::new().spawn_background(std::future::pending::<()>());
    /// # drop(_entered);
    /// // Does not wait for it.
    /// let report = runtime.shutdown(Duration::from_secs(10));
    /// assert_eq!(report.workers_stuck, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_background<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(Start::Colored(self.clone()), true, Location::caller(), future)
    }

    /// Sets how many callbacks may wait before [`Color::try_post`] refuses; `None` for no limit.
    /// Callbacks that waited before the call do not count.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let color = Color::new();
    /// color.set_capacity(Some(100));
    /// color.try_post(|| ()).expect("99 more have room");
    /// color.set_capacity(None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_capacity(&self, capacity: Option<usize>) {
        let capacity = capacity.map(|capacity| u32::try_from(capacity).unwrap_or(u32::MAX));
        context::end_direct();
        self.with_cell(|color| color.ext.set_capacity(capacity));
    }

    /// Gives the color a label, the word by which `dapple-insight` shows it: all colors with the same label are one family.
    /// Without one, a color belongs to the family of the line that made its state or that posts to it.
    ///
    /// A label is cut after 60 bytes. A process has at most [`Label::MAX`] different ones; beyond them, and for an empty
    /// text, the color has none. A label is never freed, so take the word for a kind of work, not for one connection.
    /// Cost: a lock, and a side record for the color. A tool learns of it with callbacks that the color accepts later.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let accounts = Colored::new(vec![0; 100]);
    /// accounts.color().set_label("accounts");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_label(&self, text: &str) {
        self.set(Label::of(text));
    }

    pub(crate) fn set(&self, label: Option<Label>) {
        self.with_cell(|color| color.ext.get_or_make().set_label(label.map_or(0, Label::number)));
    }

    /// The color's label.
    pub fn label(&self) -> Option<Label> {
        self.with_cell(|color| Label::of_number(color.ext.label()))
    }

    /// The most callbacks that waited in this color at one time, including those that its worker,
    /// busy with a long callback, had not yet taken into the queue.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// let color = Color::new();
    /// let last = (0..3).map(|_| color.spawn(async {})).last().unwrap();
    /// runtime.block_on(last).unwrap();
    /// assert!((1..=3).contains(&color.queue_len_max()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn queue_len_max(&self) -> usize {
        // Relaxed: for statistics.
        self.with_cell(|color| color.len_max.load(Relaxed)) as usize
    }

    /// Calls `f` with the cell, which stays alive meanwhile.
    #[inline]
    pub(crate) fn with_cell<R>(&self, f: impl FnOnce(ColorRef<'_>) -> R) -> R {
        match self.cell {
            // SAFETY: the handle keeps the cell alive.
            Some(cell) => f(unsafe { ColorRef::new(cell) }),
            // A worker keeps its runtime alive; on any other thread a counted handle does.
            None => match context::with_worker(|worker| worker.shared.default_color()) {
                // SAFETY: as above.
                Some(cell) => f(unsafe { ColorRef::new(cell) }),
                None => {
                    let current = Handle::current();
                    // SAFETY: it is a part of its runtime.
                    f(unsafe { ColorRef::new(current.shared().default_color()) })
                }
            },
        }
    }

    /// The same color, independent of the current runtime.
    pub(crate) fn resolved(&self) -> Color {
        match self.cell {
            Some(_) => self.clone(),
            None => Handle::current().default_color(),
        }
    }

    /// The cell of a resolved color, alive as long as the handle.
    #[inline]
    pub(crate) fn alive(&self) -> ColorRef<'_> {
        // SAFETY: a handle keeps its cell alive.
        unsafe { ColorRef::new(self.cell()) }
    }

    /// The cell of a resolved color.
    #[inline]
    pub(crate) fn cell(&self) -> NonNull<ColorCell> {
        self.cell.expect("a color that is stored has been resolved")
    }

    /// Whether the handle knows its cell.
    #[inline]
    pub(crate) fn is_resolved(&self) -> bool {
        self.cell.is_some()
    }

    /// The runtime of a resolved color.
    pub(crate) fn shared(&self) -> &Shared {
        self.alive().runtime()
    }

    /// Makes an idle cell with its first handle.
    pub(crate) fn allocate(shared: &Arc<Shared>, kind: Kind, id: u64, home: usize) -> NonNull<ColorCell> {
        Color::allocate_as(shared, kind, id, home, |_| ())
    }

    /// Makes a cell with its first handle. `begin` sets its state before a dump can see it.
    pub(crate) fn allocate_as(
        shared: &Arc<Shared>,
        kind: Kind,
        id: u64,
        home: usize,
        begin: impl FnOnce(&mut Links),
    ) -> NonNull<ColorCell> {
        let mut links = Links::idle();
        begin(&mut links);
        let cell = ColorCell::new(Arc::into_raw(shared.clone()), kind, id, home, links);
        // Models detect use after free, and so must not reuse memory.
        #[cfg(any(dapple_loom, dapple_shuttle))]
        return NonNull::from(Box::leak(Box::new(cell)));
        #[cfg(not(any(dapple_loom, dapple_shuttle)))]
        return crate::memory::pool::Pool::put(shared, cell);
    }

    /// A handle that takes over one count.
    pub(crate) fn from_counted(cell: NonNull<ColorCell>) -> Color {
        Color { cell: Some(cell) }
    }

    /// Adds one handle.
    ///
    /// # Safety
    /// The cell is alive: it has a handle, or this thread holds the color.
    pub(crate) unsafe fn retain(cell: NonNull<ColorCell>) -> Color {
        // SAFETY: promised by the caller. Relaxed, as in `Arc`; the count goes from 0 to 1 only
        // while the color is held, when no thread can free it.
        unsafe {
            if cell.as_ref().kind == Kind::Default {
                Arc::increment_strong_count(cell.as_ref().shared);
            } else {
                refs::add(&cell.as_ref().refs);
            }
        }
        Color { cell: Some(cell) }
    }
}

impl Default for Color {
    /// [`Color::DEFAULT`].
    fn default() -> Self {
        Color::DEFAULT
    }
}

impl Clone for Color {
    fn clone(&self) -> Self {
        match self.cell {
            // SAFETY: `self` is a handle.
            Some(cell) => unsafe { Color::retain(cell) },
            None => Color::DEFAULT,
        }
    }
}

impl Drop for Color {
    #[inline]
    fn drop(&mut self) {
        if let Some(color) = self.cell {
            Color::forget(color);
        }
    }
}

impl Color {
    /// Gives a handle's count back.
    fn forget(color: NonNull<ColorCell>) {
        // SAFETY: this handle keeps the cell alive until it gives its count back.
        let cell = unsafe { color.as_ref() };
        if cell.kind == Kind::Default {
            // SAFETY: counted in `retain` or `Handle::default_color`.
            return drop(unsafe { Arc::from_raw(cell.shared) });
        }
        // Relaxed: the exchange decides.
        let mut refs = cell.refs.load(Relaxed);
        while refs > 1 {
            // Release: all uses of this handle come before the cell is freed.
            match cell.refs.compare_exchange_weak(refs, refs - 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => refs = now,
            }
        }
        if cell.shared().is_left_behind() {
            // After a fork the lock may be a copy that a worker held; that worker does not exist in
            // this process, so no thread will release it.
            return;
        }
        // From 1 to 0 only under the home lock, so that the end of a turn can tell whether to free
        // the cell. SAFETY: no color is freed while its home lock is held.
        let mut home = unsafe { ColorRef::new(color) }.lock_home();
        let dead = if cell.refs.fetch_sub(1, AcqRel) == 1 { home.dead() } else { None };
        drop(home);
        if let Some(dead) = dead {
            // SAFETY: no lock is held.
            unsafe { hold::free(dead) };
        }
    }
}

impl PartialEq for Color {
    fn eq(&self, other: &Color) -> bool {
        match (self.cell, other.cell) {
            (Some(a), Some(b)) => a == b,
            _ => self.is_default() && other.is_default(),
        }
    }
}

impl Eq for Color {}

impl Hash for Color {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.is_default() { 0 } else { self.cell().addr().get() }.hash(state);
    }
}

impl fmt::Debug for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: a handle keeps its cell alive.
        match self.cell.map(|cell| unsafe { cell.as_ref() }) {
            Some(cell) if cell.kind == Kind::Named => write!(f, "Color(named {})", cell.id),
            Some(cell) if cell.kind == Kind::Fresh => write!(f, "Color(#{})", cell.id),
            // Relaxed: it never changes.
            Some(cell) if cell.is_pinned() => write!(f, "Color(#{}, worker {})", cell.id, cell.home.load(Relaxed)),
            _ => f.write_str("Color(default)"),
        }
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_default() { f.write_str("default") } else { write!(f, "{}", self.id()) }
    }
}
