//! The current thread: whether it is a worker, the callback that it runs, the runtime that it has
//! entered.

use std::cell::Cell;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::color::cell::ColorCell;
use crate::color::node::{Node, Origin, OwnedNode};
use crate::color::rights::{ColorRef, ColorTurn, FifoGuard};
use crate::color::{Color, Priority};
use crate::hold::request::Request;
use crate::runtime::enter::Entry;
use crate::runtime::shared::{Shared, Slot};
use crate::sync::thread_local;
use crate::task::budget::{Budget, NO_BUDGET};
use crate::task::{self, Header, LiveTask, Polled, TaskRef, Unfinished};
use crate::worker::Worker;

/// One entry of the stack of colors that the current thread holds. Lives on the holder's stack.
///
/// The frame of a closure names every color on which the closure relies, whether the closure or an
/// outer frame holds it. So a hold may end before its frame does ([`release_turn_of`]) exactly if
/// no younger frame names its color.
pub(crate) struct Frame {
    /// `None` once the color was released before the frame ended.
    color: Cell<Option<NonNull<ColorCell>>>,
    /// The thread runs a turn of the color and owns its fifo; otherwise it only holds it.
    runs: bool,
    /// The color is held for reading.
    reads: bool,
    /// A request for several colors, which are all held; null for a single color.
    request: Cell<*const Request>,
    parent: *const Frame,
    /// The task that this frame polls.
    task: Cell<*const Header>,
    /// That task is a light task, and only this frame polls it; the frame then has no color.
    light: Cell<bool>,
    /// The color, if posts to itself go straight to its fifo; see [`is_direct`].
    direct: Cell<*const ColorCell>,
}

/// Stands for the absence of a frame. Never written to.
static NO_FRAME: NoFrame = NoFrame(Frame::none());

struct NoFrame(Frame);

// SAFETY: no code writes to it: `top` leaves it out, and only the owner of any other frame knows
// that frame.
unsafe impl Sync for NoFrame {}

struct Context {
    worker: Cell<*const Worker>,
    frame: Cell<*const Frame>,
    entered: Cell<*mut Entry>,
    /// The budget of the current poll, or null; the budget lives longer than it is set here.
    budget: Cell<*const Budget>,
}

impl Context {
    const fn new() -> Context {
        Context {
            worker: Cell::new(ptr::null()),
            frame: Cell::new(&raw const NO_FRAME.0),
            entered: Cell::new(ptr::null_mut()),
            budget: Cell::new(NO_BUDGET),
        }
    }
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
thread_local! {
    static CONTEXT: Context = const { Context::new() };
}

#[cfg(any(dapple_loom, dapple_shuttle))]
thread_local! {
    static CONTEXT: Context = Context::new();
}

/// A number that no other living thread has.
#[inline]
pub(crate) fn thread_token() -> usize {
    CONTEXT.with(|context| ptr::from_ref(context).addr())
}

/// Calls `f` with this thread's worker; `None` on any other thread.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(&Worker) -> R) -> Option<R> {
    with_own_worker(|worker| worker.map(f))
}

/// As [`with_worker`], but calls `f` in any case.
#[inline]
pub(crate) fn with_own_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    f(worker())
}

/// Calls `f` with this thread's worker, if it belongs to that runtime.
#[inline]
pub(crate) fn with_worker_of<R>(shared: *const Shared, f: impl FnOnce(Option<&Worker>) -> R) -> R {
    with_own_worker(|worker| f(worker.filter(|worker| ptr::eq(&*worker.shared, shared))))
}

/// Offers `what` to this thread's worker; returns it if there is no worker or it declines.
#[inline]
pub(crate) fn offer_worker<T>(what: T, take: impl FnOnce(&Worker, T) -> Option<T>) -> Option<T> {
    match worker() {
        Some(worker) => take(worker, what),
        None => Some(what),
    }
}

#[inline]
fn worker<'a>() -> Option<&'a Worker> {
    let worker = CONTEXT.with(|context| context.worker.get());
    // SAFETY: set by `WorkerScope`, which outlives every closure that the callers of this private
    // function run on it; only this thread reads it.
    unsafe { worker.as_ref() }
}

/// The index of the current thread's worker, if it belongs to this runtime.
#[inline]
pub(crate) fn index_in(shared: &Shared) -> Option<usize> {
    with_worker(|worker| ptr::eq(&*worker.shared, shared).then_some(worker.index)).flatten()
}

/// Whether the current thread is a worker, of any runtime. Blocking there is forbidden (C9).
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::on_worker;
///
/// assert!(!on_worker());
/// assert!(runtime.block_on(runtime.spawn(async { on_worker() })).unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_worker() -> bool {
    CONTEXT.with(|context| !context.worker.get().is_null())
}

/// Tells the worker that the current callback or poll has run for this long, so that it polls for
/// events in time afterwards. Does nothing on other threads.
///
/// A worker seldom reads the clock, and assumes that callbacks in between take as little time as
/// most did. That assumption is wrong for the few callbacks that take milliseconds, such as
/// handlers among tasks that only pass data on. Code that measures such a callback anyway can tell
/// the worker here. Cost: some nanoseconds.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use std::time::Instant;
///
/// dapple_sched::Color::new().post(|| {
///     let began = Instant::now();
///     // … what takes long …
///     dapple_sched::count_time(began.elapsed());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn count_time(ran: Duration) {
    with_worker(|worker| worker.count_time(u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX)));
}

/// Makes the current thread a worker while it lives.
pub(crate) struct WorkerScope<'a> {
    current: &'a Worker,
    worker: *const Worker,
    frame: *const Frame,
    budget: *const Budget,
}

impl WorkerScope<'_> {
    pub(crate) fn enter(worker: &Worker) -> WorkerScope<'_> {
        worker.slot().bind();
        CONTEXT.with(|context| WorkerScope {
            current: worker,
            worker: context.worker.replace(worker),
            frame: context.frame.replace(&worker.frame),
            budget: context.budget.replace(&worker.slot().budget),
        })
    }
}

impl Drop for WorkerScope<'_> {
    fn drop(&mut self) {
        self.current.slot().unbind();
        CONTEXT.with(|context| {
            context.worker.set(self.worker);
            context.frame.set(self.frame);
            context.budget.set(self.budget);
        });
    }
}

/// Runs `f` while the thread counts as holding `color`.
#[inline]
pub(crate) fn in_frame<R>(color: NonNull<ColorCell>, f: impl FnOnce(&Frame) -> R) -> R {
    in_new_frame(Some(color), false, false, ptr::null(), f)
}

/// Runs `f` in that turn. Returns the turn, unless `f` released it.
pub(crate) fn in_turn(turn: ColorTurn, f: impl FnOnce(&Frame)) -> Option<ColorTurn> {
    in_new_frame(Some(turn.into_raw()), true, false, ptr::null(), |frame| {
        f(frame);
        frame.leave()
    })
}

/// Runs `f` while the thread counts as a reader of `color`.
#[inline]
pub(crate) fn in_read_frame<R>(color: NonNull<ColorCell>, f: impl FnOnce() -> R) -> R {
    in_new_frame(Some(color), false, true, ptr::null(), |_| f())
}

/// Runs `f` while the thread counts as holding all colors of a request.
#[inline]
pub(crate) fn in_request_frame<R>(request: NonNull<Request>, f: impl FnOnce(&Frame) -> R) -> R {
    in_new_frame(None, false, false, request.as_ptr(), f)
}

#[inline]
fn in_new_frame<R>(
    color: Option<NonNull<ColorCell>>,
    runs: bool,
    reads: bool,
    request: *const Request,
    f: impl FnOnce(&Frame) -> R,
) -> R {
    struct Restore(*const Frame);
    impl Drop for Restore {
        #[inline]
        fn drop(&mut self) {
            CONTEXT.with(|context| context.frame.set(self.0));
        }
    }
    let parent = CONTEXT.with(|context| context.frame.get());
    let (request, color) = (Cell::new(request), Cell::new(color));
    let frame = Frame { color, runs, reads, request, parent, ..Frame::none() };
    CONTEXT.with(|context| context.frame.set(&frame));
    let _restore = Restore(parent);
    f(&frame)
}

/// Ends a light task while the thread counts as having it for itself.
pub(crate) fn in_light_frame(task: Unfinished, end: impl FnOnce(Unfinished)) {
    in_new_frame(None, false, false, ptr::null(), |frame| {
        frame.begin_light();
        // SAFETY: code in this frame does not ask for the task after its end.
        unsafe { frame.set_task(task.task()) };
        end(task);
    });
}

impl Frame {
    /// A frame without color or task.
    #[inline]
    const fn none() -> Frame {
        Frame {
            color: Cell::new(None),
            runs: false,
            reads: false,
            request: Cell::new(ptr::null()),
            parent: ptr::null(),
            task: Cell::new(ptr::null()),
            light: Cell::new(false),
            direct: Cell::new(NOT_DIRECT),
        }
    }

    /// The frame of a worker's turns, still without a turn.
    pub(crate) fn of_worker() -> Frame {
        Frame { runs: true, ..Frame::none() }
    }

    /// From here on the frame polls light tasks.
    #[inline]
    pub(crate) fn begin_light(&self) {
        self.light.set(true);
    }

    #[inline]
    pub(crate) fn end_light(&self) {
        self.light.set(false);
        self.clear_task();
    }

    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.light.get()
    }

    /// # Safety
    /// The task stays alive until the frame has another one, or none, or is not used any more.
    #[inline]
    pub(crate) unsafe fn set_task(&self, task: LiveTask<'_>) {
        self.task.set(task.pointer().as_ptr());
    }

    #[inline]
    pub(crate) fn clear_task(&self) {
        self.task.set(ptr::null());
    }

    #[inline]
    fn task(&self) -> Option<LiveTask<'_>> {
        // SAFETY: the task is alive while it is polled here, see `set_task` and `in_task`.
        NonNull::new(self.task.get().cast_mut()).map(|task| unsafe { LiveTask::new(task) })
    }

    /// Whether the frame polls this light task.
    #[inline]
    pub(crate) fn polls_light(&self, task: LiveTask<'_>) -> bool {
        self.light.get() && ptr::eq(self.task.get(), task.pointer().as_ptr())
    }

    /// The light task being polled has a color now, and its poll is a turn of the color.
    pub(crate) fn go_on_as_turn(&self, turn: ColorTurn) {
        self.light.set(false);
        self.color.set(Some(turn.into_raw()));
    }

    /// The light task, if there is one.
    #[inline]
    fn light_task(&self) -> Option<LiveTask<'_>> {
        self.task().filter(|_| self.light.get())
    }

    /// A turn begins in the worker's frame, which is on top. `plain`: no post to its color is
    /// traced or counted.
    #[inline]
    pub(crate) fn enter(&self, turn: ColorTurn, plain: bool) {
        let color = turn.into_raw();
        self.color.set(Some(color));
        self.direct.set(if plain { color.as_ptr() } else { NOT_DIRECT });
    }

    /// Takes the turn of this frame, which is over. `None` if it was released before.
    #[inline]
    pub(crate) fn leave(&self) -> Option<ColorTurn> {
        assert!(self.runs, "it is the frame of a turn");
        self.direct.set(NOT_DIRECT);
        // SAFETY: a frame with `runs` was given the turn of its color.
        self.color.take().map(|color| unsafe { ColorTurn::new(color) })
    }

    /// Takes the given node out of the fifo of the color with a turn in this frame, in order to run
    /// it, if the node is the oldest.
    pub(crate) fn take_if_next(&self, node: NonNull<Node>) -> Option<OwnedNode> {
        let mut fifo = self.running()?;
        fifo.drain_inbox();
        if fifo.is_next(node) { fifo.take_next() } else { None }
    }

    /// The fifo of the color with a turn in this frame.
    #[inline]
    fn running(&self) -> Option<FifoGuard<'_>> {
        let color = self.color.get().filter(|_| self.runs)?;
        // SAFETY: as in `leave`. The callers, which are private, no longer use it when the turn
        // ends.
        Some(unsafe { FifoGuard::new(ColorRef::new(color)) })
    }

    /// The color, unless it was released.
    pub(crate) fn color(&self) -> Option<NonNull<ColorCell>> {
        self.color.get()
    }

    /// Whether the color was released before the frame ended; see [`release_turn_of`].
    #[inline]
    pub(crate) fn is_released(&self) -> bool {
        self.color.get().is_none()
    }

    /// Whether the frame holds `color`, for writing or, if it `reads`, at least for reading.
    #[inline]
    fn has(&self, color: NonNull<ColorCell>, reads: bool) -> bool {
        if self.color.get() == Some(color) {
            return reads || !self.reads;
        }
        if self.light_task().and_then(LiveTask::color).is_some_and(|of_task| of_task.cell() == color) {
            return true;
        }
        // SAFETY: a request outlives its frame, or is taken out before.
        unsafe { self.request.get().as_ref() }.is_some_and(|request| request.holds(color, reads))
    }

    /// Notes that the request of this frame is released, except the color `kept`.
    pub(crate) fn end_request(&self, kept: Option<NonNull<ColorCell>>) {
        self.request.set(ptr::null());
        self.color.set(kept);
    }
}

/// Takes the turn of `color` out of an outer frame of this thread, for the caller to end. `None`
/// also if a closure that is still open relies on the turn: then the turn continues to its end.
///
/// # Safety
/// The callback in the turn no longer needs the color.
pub(crate) unsafe fn release_turn_of(color: NonNull<ColorCell>) -> Option<ColorTurn> {
    let frame = frames().find(|frame| frame.has(color, true))?;
    if frame.runs && frame.color.get() == Some(color) { frame.leave() } else { None }
}

/// Whether an open closure in a frame younger than this one has `color`.
pub(crate) fn relies_on(outer: &Frame, color: NonNull<ColorCell>) -> bool {
    frames().take_while(|frame| !ptr::eq(*frame, outer)).any(|frame| frame.has(color, true))
}

/// The innermost held color: if a running callback asks, its color.
#[inline]
pub(crate) fn current_color() -> Option<NonNull<ColorCell>> {
    frames().find_map(|frame| {
        let of_light = || frame.light_task().map(|task| task::ensure_color(task).cell());
        frame.color.get().or_else(of_light)
    })
}

/// Whether the thread is directly inside a callback or the poll of a light task.
#[inline]
pub(crate) fn in_callback() -> bool {
    top().is_some_and(|frame| frame.runs && (frame.color.get().is_some() || frame.light.get()))
}

/// Whether this thread polls or ends that light task.
pub(crate) fn polls_light(task: LiveTask<'_>) -> bool {
    frames().any(|frame| frame.polls_light(task))
}

/// Whether this worker polls a light task, at any depth.
pub(crate) fn polls_any_light() -> bool {
    with_worker(|worker| worker.frame.light.get()).unwrap_or(false)
}

/// Wakes the light task that this worker polls, if it is this one: it will be polled again.
#[inline]
pub(crate) fn wake_polled(task: *const ()) -> bool {
    with_worker(|worker| {
        let polled = worker.frame.light.get() && worker.frame.task.get().cast() == task;
        if polled {
            worker.woken.set(true);
        }
        polled
    })
    .unwrap_or(false)
}

/// Runs a closure on a state that was made at that line; reports on this worker show the line.
#[inline]
pub(crate) fn in_state<R>(made_from: Origin, f: impl FnOnce() -> R) -> R {
    crate::observe::trace::note_state(made_from);
    struct Restore<'a>(&'a Slot, *const Location<'static>);
    impl Drop for Restore<'_> {
        #[inline]
        fn drop(&mut self) {
            self.0.replace_state(self.1);
        }
    }
    let slot = worker().map(Worker::slot);
    let _restore = slot.map(|slot| Restore(slot, slot.replace_state(made_from)));
    f()
}

/// Whether the innermost task that this worker polls will be polled again.
pub(crate) fn is_woken() -> bool {
    let polled_light = || with_worker(|worker| worker.frame.light.get() && worker.woken.get()).unwrap_or(false);
    innermost_task().is_some_and(|task| task.is_woken() || polls_light(task) && polled_light())
}

/// Puts a node of that priority into the fifo of the color, if this thread runs a turn of it and
/// the post needs only a push to the fifo, as most posts do; one check is enough. Otherwise returns
/// the node. `None` is the default color; this does not look up its cell.
///
/// The turn has checked once whether such posts are traced or counted. If another thread begins to
/// trace, or sets a capacity, the color's posts to itself are traced or counted from its next turn
/// on.
#[inline]
pub(crate) fn push_direct(color: Option<ColorRef<'_>>, node: OwnedNode, priority: Priority) -> Result<(), OwnedNode> {
    let frame = CONTEXT.with(|context| context.frame.get());
    // SAFETY: as in `top`; without a frame, this is `NO_FRAME`.
    let direct = unsafe { &*frame }.direct.get();
    let cell = color.map_or(ptr::null(), |color| color.ptr().as_ptr().cast_const());
    let Some(color) = color.filter(|_| ptr::eq(direct, cell)) else { return Err(node) };
    // SAFETY: the thread runs the color, so it owns the fifo.
    let mut fifo = unsafe { FifoGuard::new(color) };
    if fifo.inbox_waits() {
        return Err(node);
    }
    fifo.push_as(node, priority);
    Ok(())
}

/// From here on, and until its turn ends, posts to the running color take the full path.
pub(crate) fn end_direct() {
    frames().for_each(|frame| frame.direct.set(NOT_DIRECT));
}

/// Puts a node into the fifo of that color, after the nodes of the inbox, if the color is on top
/// and this thread runs its turn. Otherwise returns the node.
#[inline]
pub(crate) fn push_in_turn(color: ColorRef<'_>, node: OwnedNode) -> Result<(), OwnedNode> {
    match top().filter(|frame| frame.color.get() == Some(color.ptr())).and_then(Frame::running) {
        Some(mut fifo) => {
            fifo.drain_inbox();
            fifo.push(node);
            Ok(())
        }
        None => Err(node),
    }
}

/// Counts a post to another color in the fifo of the color on top, if this thread runs its turn;
/// false: it does not.
#[inline]
pub(crate) fn note_post() -> bool {
    top().and_then(Frame::running).map(|mut fifo| fifo.note_traffic(1, None)).is_some()
}

/// Notes that a post counted by [`note_post`] goes to another worker.
#[inline]
pub(crate) fn note_post_away(worker: usize) {
    top().and_then(Frame::running).into_iter().for_each(|mut fifo| fifo.note_post_away(worker));
}

/// Counts posts as [`note_post`] does, for the color with this worker's turn, whatever else the
/// thread holds.
#[inline]
pub(crate) fn note_turn(posts: u16, elsewhere: Option<usize>) -> bool {
    with_worker(|worker| worker.note_turn(posts, elsewhere)).unwrap_or(false)
}

/// Whether this thread holds `color` for writing, at any depth.
#[inline]
pub(crate) fn holds(color: NonNull<ColorCell>) -> bool {
    frames().any(|frame| frame.has(color, false))
}

/// Whether this thread holds `color`, at least for reading.
pub(crate) fn reads(color: NonNull<ColorCell>) -> bool {
    frames().any(|frame| frame.has(color, true))
}

/// Calls `f` with the frame in which this thread holds the colors of a request, if there is one.
pub(crate) fn with_frame_of<R>(request: NonNull<Request>, f: impl FnOnce(&Frame) -> R) -> Option<R> {
    frames().find(|frame| ptr::eq(frame.request.get(), request.as_ptr())).map(f)
}

/// The number of colors, or sets of colors, that the thread holds; the color of a light task
/// counts, even if it does not exist.
pub(crate) fn depth() -> usize {
    let holds = |frame: &&Frame| !frame.is_released() || !frame.request.get().is_null() || frame.light.get();
    frames().filter(holds).count()
}

/// Runs `poll` as the poll of a task in the frame on top.
#[inline]
pub(crate) fn in_task(task: Unfinished, poll: impl FnOnce(Unfinished) -> Polled) -> Polled {
    struct Restore<'a>(&'a Frame, *const Header);
    impl Drop for Restore<'_> {
        #[inline]
        fn drop(&mut self) {
            self.0.task.set(self.1);
        }
    }
    // `poll` returns the task, so it is alive until then.
    let _restore = top().map(|frame| Restore(frame, frame.task.replace(task.task().pointer().as_ptr())));
    poll(task)
}

/// The innermost task that this thread is polling.
pub(crate) fn current_task() -> Option<TaskRef> {
    innermost_task().map(LiveTask::retain)
}

/// Calls `f` with that task's color, if the color was requested.
pub(crate) fn with_task_color<R>(f: impl FnOnce(Option<ColorRef<'_>>) -> R) -> R {
    f(innermost_task().and_then(LiveTask::color).map(Color::alive))
}

fn innermost_task<'a>() -> Option<LiveTask<'a>> {
    frames().find_map(Frame::task)
}

/// Calls `f` with the current budget of this thread, if there is one.
#[inline]
pub(crate) fn with_budget<R>(f: impl FnOnce(Option<&Budget>) -> R) -> R {
    let budget = CONTEXT.with(|context| context.budget.get());
    // SAFETY: `WorkerScope` and `in_budget` take it back before it is freed, and only this thread
    // reads it.
    f(unsafe { budget.as_ref() })
}

/// Runs `f` with a budget.
pub(crate) fn in_budget<R>(budget: &Budget, f: impl FnOnce() -> R) -> R {
    struct Restore(*const Budget);
    impl Drop for Restore {
        fn drop(&mut self) {
            CONTEXT.with(|context| context.budget.set(self.0));
        }
    }
    let _restore = Restore(CONTEXT.with(|context| context.budget.replace(budget)));
    f()
}

/// The newest entry of the runtimes that the thread has entered, or null.
pub(super) fn entered() -> *mut Entry {
    CONTEXT.with(|context| context.entered.get())
}

pub(super) fn set_entered(entry: *mut Entry) {
    CONTEXT.with(|context| context.entered.set(entry));
}

#[inline]
fn top<'a>() -> Option<&'a Frame> {
    let frame = CONTEXT.with(|context| context.frame.get());
    // SAFETY: frames are on this thread's stack, below every caller of this private function, and
    // unlink themselves when they end, even by unwinding.
    if ptr::eq(frame, &raw const NO_FRAME.0) { None } else { unsafe { frame.as_ref() } }
}

#[inline]
fn frames<'a>() -> impl Iterator<Item = &'a Frame> {
    std::iter::successors(top(), |frame| {
        // SAFETY: a parent outlives its child on the stack.
        unsafe { frame.parent.as_ref() }.filter(|frame| !ptr::eq(*frame, &raw const NO_FRAME.0))
    })
}

/// No color: not null, because null in a handle means the default color.
const NOT_DIRECT: *const ColorCell = ptr::dangling();
