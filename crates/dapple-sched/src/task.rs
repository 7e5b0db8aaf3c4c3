//! Tasks: a future with a color, polled by callbacks of that color.
//!
//! A task is one allocation: a header whose first field is the node that is queued when the task is woken, and the
//! future, which becomes the output. The color serializes the polls, so the state needs no "running" bit.
//!
//! # State bits
//!
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | `SCHEDULED` | wake, abort | the poll, when it begins | the node is queued; whoever sets it posts |
//! | `ABORTED` | abort, shutdown | nobody | the next callback drops the future instead of polling it |
//! | `DONE` | the callback that ends the task | nobody | the output (or error) is stored; the node is never queued again |
//! | `JOINED` | spawn | dropping the join handle | somebody may take the output |
//! | `BACKGROUND` | spawn | nobody | a graceful shutdown does not wait for it |
//!
//! Whoever of "end of the task" and "drop of the handle" changes the state second drops the output.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::Priority;
use crate::abort::AbortHandle;
use crate::cell::ColorCell;
use crate::color::Color;
use crate::context;
use crate::join_error::{Cause, JoinError};
use crate::lock::Lock;
use crate::node::{Node, Origin, VTable};
use crate::post;
use crate::shared::Shared;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use crate::ticket::Ticket;

/// The part of a task that does not depend on its future.
#[repr(C)]
pub(crate) struct Header {
    /// At offset zero, so that a node is a task.
    node: Node,
    state: AtomicU32,
    refs: AtomicU32,
    color: Color,
    vtable: &'static TaskVTable,
    joiner: Lock<Option<Waker>>,
    /// Grants that were handed to this task; see `ticket.rs`.
    granted: AtomicPtr<Ticket>,
    /// Links of the runtime's list of live tasks, under the lock of `list`.
    prev: UnsafeCell<*const Header>,
    next: UnsafeCell<*const Header>,
    list: u16,
}

struct TaskVTable {
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> bool,
    abort: unsafe fn(NonNull<Header>),
    take: unsafe fn(NonNull<Header>, *mut ()),
    drop_output: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct TaskCell<F: Future> {
    header: Header,
    /// Touched by callbacks of the color until `DONE`, then by the join handle.
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Output(Result<F::Output, JoinError>),
    Empty,
}

/// A counted reference to a task.
pub(crate) struct TaskRef(NonNull<Header>);

// SAFETY: a task's future and output are `Send` (bounds of `spawn`), its shared parts are atomic or locked.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

/// The live tasks of one shard, in an intrusive list.
pub(crate) struct TaskList {
    head: *const Header,
}

// SAFETY: only reached under its lock; the tasks on it are counted.
unsafe impl Send for TaskList {}

/// Starts a task of the given color. Cost: one allocation, one post.
pub(crate) fn spawn<F>(color: Color, background: bool, origin: Origin, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let color = color.resolved();
    // SAFETY: the task's color keeps the runtime alive, and the task is alive until the end of this function.
    let shared = unsafe { NonNull::from(color.shared()).as_ref() };
    let list = context::with_worker(|worker| worker.index).unwrap_or(0).min(shared.tasks.len() - 1);
    let task = Box::new(TaskCell {
        header: Header {
            node: Node::new(NODE_VTABLE, Priority::NORMAL, origin),
            state: AtomicU32::new(SCHEDULED | JOINED | if background { BACKGROUND } else { 0 }),
            // One for the list, one for the queued node, one for the handle.
            refs: AtomicU32::new(3),
            color,
            vtable: TaskCell::<F>::VTABLE,
            joiner: Lock::new(None),
            granted: AtomicPtr::new(ptr::null_mut()),
            prev: UnsafeCell::new(ptr::null()),
            next: UnsafeCell::new(ptr::null()),
            list: list as u16,
        },
        stage: UnsafeCell::new(Stage::Future(future)),
    });
    let header = NonNull::from(Box::leak(task)).cast::<Header>();
    // SAFETY: just made; three counts.
    let header_ref = unsafe { header.as_ref() };
    if !background {
        // Relaxed: a number; what a worker has counted before it fell asleep is visible to who sees it asleep.
        shared.tasks_live.fetch_add(1, Relaxed);
    }
    shared.tasks[list].lock().insert(header);
    let handle = JoinHandle { task: TaskRef(header), output: PhantomData };
    // SAFETY: the header holds the color; SCHEDULED is ours since the start, with a count of its own.
    unsafe { post::post(header_ref.color_cell(), header.cast()) };
    handle
}

/// Aborts every task that is left; called once all workers have stopped.
pub(crate) fn drop_all(shared: &Shared) {
    for list in &shared.tasks {
        // One at a time: dropping a future may end or spawn others.
        loop {
            let Some(task) = list.lock().take() else { break };
            task.header().abort();
        }
    }
}

/// The color of a task.
///
/// # Safety
/// The task is alive.
pub(crate) unsafe fn color_of(task: NonNull<Header>) -> NonNull<ColorCell> {
    // SAFETY: promised by the caller.
    unsafe { task.as_ref() }.color_cell()
}

const NODE_VTABLE: &VTable =
    &VTable { run: run_node, drop: drop_node, grant: None, holder: None, granted_when_stopped: false };

/// A queued task has its turn.
///
/// # Safety
/// The node is a task's, with its count the caller's to give; called by a turn of the task's color.
unsafe fn run_node(node: NonNull<Node>) {
    let task = TaskRef(node.cast());
    let header = task.header();
    // AcqRel: acquires what the waker did before it woke; what it does from here on schedules anew.
    let state = header.state.fetch_and(!SCHEDULED, AcqRel);
    if state & DONE != 0 {
        return;
    }
    if state & ABORTED != 0 {
        // SAFETY: this is a callback of the task's color, and the task is not done.
        unsafe { header.end_aborted(task.0) };
        // They are over, but count on the task, which counts on them.
        header.revoke_grants();
        return;
    }
    // SAFETY: this is a callback of the task's color, and the task is not done.
    unsafe { header.poll(task.0) };
}

/// A queued task will not have its turn any more.
///
/// # Safety
/// The node is a task's, with its count the caller's to give; the caller holds the task's color.
unsafe fn drop_node(node: NonNull<Node>) {
    let task = TaskRef(node.cast());
    let header = task.header();
    // AcqRel: as in `run_node`.
    let state = header.state.fetch_and(!SCHEDULED, AcqRel);
    if state & DONE == 0 {
        if state & BACKGROUND == 0 {
            // Relaxed: a number to show.
            header.shared().tasks_dropped.fetch_add(1, Relaxed);
        }
        // SAFETY: whoever drops a node holds its color.
        unsafe { header.end_aborted(task.0) };
    }
    header.revoke_grants();
}

impl Header {
    pub(crate) fn shared(&self) -> &Shared {
        self.color.shared()
    }

    fn color_cell(&self) -> NonNull<ColorCell> {
        self.color.cell()
    }

    /// Polls, and sees to what follows from it.
    ///
    /// # Safety
    /// The caller holds the color and a reference to the task, which is not done.
    unsafe fn poll(&self, task: NonNull<Header>) {
        // SAFETY: the waker borrows the caller's count, and is not dropped.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(task)) });
        let mut cx = Context::from_waker(&waker);
        // What is granted while this poll runs may have come too late for it. There is one more, for that grant.
        let granted = self.take_grants();
        // SAFETY: promised by the caller.
        let done = context::in_task(self, || unsafe { (self.vtable.poll)(task, &mut cx) });
        Header::revoke(granted);
        if done {
            self.finish(task);
            self.revoke_grants();
        }
    }

    fn schedule(&self, bits: u32) {
        // AcqRel: releases what the waker did to the poll that clears the bit.
        let state = self.state.fetch_or(SCHEDULED | bits, AcqRel);
        if state & (SCHEDULED | DONE) == 0 {
            let header = NonNull::from(self);
            mem::forget(TaskRef::retain(header));
            // SAFETY: the header holds the color; setting SCHEDULED made the node ours.
            unsafe { post::post(self.color_cell(), header.cast()) };
        }
    }

    fn abort(&self) {
        self.schedule(ABORTED);
    }

    /// # Safety
    /// The caller holds the color, and the task is not done.
    unsafe fn end_aborted(&self, task: NonNull<Header>) {
        // SAFETY: promised by the caller.
        unsafe { (self.vtable.abort)(task) };
        self.finish(task);
    }

    /// The output is stored: publishes it.
    fn finish(&self, task: NonNull<Header>) {
        // AcqRel: releases the output to the joiner; acquires that the handle is gone.
        let state = self.state.fetch_or(DONE, AcqRel);
        if state & JOINED == 0 {
            // SAFETY: no handle is left, so the output is ours; we hold the color.
            unsafe { (self.vtable.drop_output)(task) };
        } else {
            // A joiner stores his waker under the lock and looks at DONE afterwards: either we find it, or he sees it.
            let joiner = self.joiner.lock().take();
            if let Some(joiner) = joiner {
                joiner.wake();
            }
        }
        let shared = self.shared();
        if state & BACKGROUND == 0 {
            // Relaxed: a number; see `spawn`.
            shared.tasks_live.fetch_sub(1, Relaxed);
        }
        let listed = shared.tasks[usize::from(self.list)].lock().remove(task);
        drop(listed);
    }

    fn take_grants(&self) -> *mut Ticket {
        // Relaxed: what was noted before DONE was set is visible, as both go through `state`; of a later one `note_grant`
        // sees DONE. While the task is not done, what is missed now is seen at its next poll.
        if self.granted.load(Relaxed).is_null() {
            return ptr::null_mut();
        }
        // Acquire pairs with `note_grant`.
        self.granted.swap(ptr::null_mut(), AcqRel)
    }

    /// The task will not use them any more.
    fn revoke_grants(&self) {
        Header::revoke(self.take_grants());
    }

    fn revoke(grants: *mut Ticket) {
        let mut rest = grants;
        while !rest.is_null() {
            // SAFETY: `note_grant` put a counted ticket there.
            let ticket = unsafe { Arc::from_raw(rest) };
            rest = ticket.next_granted.load(Relaxed);
            // SAFETY: noted by `hand_over`, which recorded the color.
            unsafe { ticket.revoke() };
        }
    }
}

impl TaskRef {
    pub(crate) fn retain(task: NonNull<Header>) -> TaskRef {
        // SAFETY: the caller has a reference to the task. Relaxed: as in `Arc`.
        unsafe { task.as_ref() }.refs.fetch_add(1, Relaxed);
        TaskRef(task)
    }

    fn header(&self) -> &Header {
        // SAFETY: counted.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.header().shared()
    }

    pub(crate) fn abort(&self) {
        self.header().abort();
    }

    pub(crate) fn is_done(&self) -> bool {
        // Acquire pairs with `finish`: the output is there.
        self.header().state.load(Acquire) & DONE != 0
    }

    pub(crate) fn color(&self) -> &Color {
        &self.header().color
    }

    /// What stands in the color's fifo when the task has been woken.
    pub(crate) fn node(&self) -> NonNull<Node> {
        self.0.cast()
    }

    /// The task's color.
    pub(crate) fn color_cell(&self) -> NonNull<ColorCell> {
        self.header().color_cell()
    }

    /// Polls the task here. A poll that is queued already will find out by itself that it comes too late; an abort is
    /// left to it.
    ///
    /// # Safety
    /// This thread holds the task's color.
    pub(crate) unsafe fn poll_here(&self) {
        // Acquire: as in `run_node`.
        if self.header().state.load(Acquire) & (DONE | ABORTED) == 0 {
            // SAFETY: promised by the caller; the task is not done.
            unsafe { self.header().poll(self.0) };
        }
    }

    /// Remembers a grant, to be taken back when the task has been polled and has not used it.
    pub(crate) fn note_grant(&self, ticket: Arc<Ticket>) {
        let header = self.header();
        let ticket = Arc::into_raw(ticket).cast_mut();
        // Relaxed: the exchange decides, and releases the ticket to `revoke_grants`.
        let mut old = header.granted.load(Relaxed);
        loop {
            // SAFETY: counted; ours until the exchange.
            unsafe { &*ticket }.next_granted.store(old, Relaxed);
            match header.granted.compare_exchange_weak(old, ticket, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        // A task that has ended is not polled again, and nobody else would take the grant back. A read-modify-write on
        // the word that DONE is set in: either we see DONE, or the end of the task sees the grant.
        // AcqRel pairs with `finish`.
        if header.state.fetch_or(0, AcqRel) & DONE != 0 {
            header.revoke_grants();
        }
    }
}

impl Clone for TaskRef {
    fn clone(&self) -> TaskRef {
        TaskRef::retain(self.0)
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // AcqRel: as in `Arc`.
        if self.header().refs.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the last reference. The list holds one until the task is done, so the future is gone.
            unsafe { (self.header().vtable.free)(self.0) };
        }
    }
}

impl TaskList {
    pub(crate) fn new() -> TaskList {
        TaskList { head: ptr::null() }
    }

    /// Takes over one count.
    fn insert(&mut self, task: NonNull<Header>) {
        // SAFETY: alive, and in no list; neighbors are in this list, whose lock the caller holds.
        unsafe {
            set(&task.as_ref().next, self.head);
            if let Some(head) = self.head.as_ref() {
                set(&head.prev, task.as_ptr());
            }
        }
        self.head = task.as_ptr();
    }

    /// Gives back the list's count, unless [`TaskList::take`] has done so.
    fn remove(&mut self, task: NonNull<Header>) -> Option<TaskRef> {
        // SAFETY: as in `insert`.
        unsafe {
            let (prev, next) = (get(&task.as_ref().prev), get(&task.as_ref().next));
            if prev.is_null() && !ptr::eq(self.head, task.as_ptr()) {
                return None;
            }
            match prev.as_ref() {
                Some(prev) => set(&prev.next, next),
                None => self.head = next,
            }
            if let Some(next) = next.as_ref() {
                set(&next.prev, prev);
            }
            set(&task.as_ref().prev, ptr::null());
            set(&task.as_ref().next, ptr::null());
        }
        Some(TaskRef(task))
    }

    fn take(&mut self) -> Option<TaskRef> {
        self.remove(NonNull::new(self.head.cast_mut())?)
    }
}

fn get(link: &UnsafeCell<*const Header>) -> *const Header {
    // SAFETY: links are touched under the lock of their list only.
    link.with_mut(|link| unsafe { *link })
}

fn set(link: &UnsafeCell<*const Header>, to: *const Header) {
    // SAFETY: links are touched under the lock of their list only.
    link.with_mut(|link| unsafe { *link = to });
}

impl<F> TaskCell<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    const VTABLE: &'static TaskVTable = &TaskVTable {
        poll: Self::poll,
        abort: Self::abort,
        take: Self::take,
        drop_output: Self::drop_output,
        free: Self::free,
    };

    /// # Safety
    /// The caller owns the stage: a callback of the color before DONE, or the one handle after it.
    unsafe fn stage<'a>(task: NonNull<Header>) -> &'a mut Stage<F> {
        // SAFETY: made by `spawn` for this `F`.
        let cell = unsafe { task.cast::<TaskCell<F>>().as_ref() };
        // SAFETY: promised by the caller.
        cell.stage.with_mut(|stage| unsafe { &mut *stage })
    }

    /// Polls; true when the output is stored. A panic is the task's result (C8).
    ///
    /// # Safety
    /// As [`TaskCell::stage`].
    unsafe fn poll(task: NonNull<Header>, cx: &mut Context<'_>) -> bool {
        // SAFETY: promised by the caller.
        let stage = unsafe { Self::stage(task) };
        let Stage::Future(future) = stage else { return true };
        // SAFETY: the task is heap-allocated and does not move; its future is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let output = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(crate::panics::of_task(task, payload)),
        };
        // SAFETY: as above.
        unsafe { Self::set_output(task, output) };
        true
    }

    /// # Safety
    /// As [`TaskCell::stage`].
    unsafe fn abort(task: NonNull<Header>) {
        // SAFETY: promised by the caller.
        unsafe { Self::set_output(task, Err(JoinError { cause: Cause::Aborted })) };
    }

    /// Drops the future and stores the output. A panicking destructor becomes the result.
    ///
    /// # Safety
    /// As [`TaskCell::stage`].
    unsafe fn set_output(task: NonNull<Header>, output: Result<F::Output, JoinError>) {
        // SAFETY: promised by the caller. Dropped in place, as the future is pinned; `Empty` is written without
        // dropping again, whether or not the destructor panicked.
        let dropped = unsafe {
            let stage: *mut Stage<F> = Self::stage(task);
            let dropped = catch_unwind(AssertUnwindSafe(|| ptr::drop_in_place(stage)));
            ptr::write(stage, Stage::Empty);
            dropped
        };
        let output = match dropped {
            Ok(()) => output,
            Err(payload) => Err(crate::panics::of_task(task, payload)),
        };
        // SAFETY: promised by the caller.
        unsafe { *Self::stage(task) = Stage::Output(output) };
    }

    /// Moves the output to `to`.
    ///
    /// # Safety
    /// As [`TaskCell::stage`]; `to` points to an `Option<Result<F::Output, JoinError>>`.
    unsafe fn take(task: NonNull<Header>, to: *mut ()) {
        // SAFETY: promised by the caller.
        let stage = mem::replace(unsafe { Self::stage(task) }, Stage::Empty);
        if let Stage::Output(output) = stage {
            // SAFETY: promised by the caller.
            unsafe { *to.cast::<Option<Result<F::Output, JoinError>>>() = Some(output) };
        }
    }

    /// # Safety
    /// As [`TaskCell::stage`].
    unsafe fn drop_output(task: NonNull<Header>) {
        // SAFETY: promised by the caller.
        let stage = mem::replace(unsafe { Self::stage(task) }, Stage::Empty);
        // SAFETY: the caller has a reference to the task.
        let header = unsafe { task.as_ref() };
        match stage {
            // Nobody awaits the task, or nobody has asked for its result: the panic is nobody's but the handler's.
            Stage::Output(Err(JoinError { cause: Cause::Panicked(payload) })) => {
                let payload = payload.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
                crate::panics::tell(header.shared(), Some(header.color_cell()), payload);
            }
            stage => {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(stage))) {
                    crate::panics::report(header.shared(), Some(header.color_cell()), payload);
                }
            }
        }
    }

    /// # Safety
    /// The last reference is gone.
    unsafe fn free(task: NonNull<Header>) {
        // SAFETY: the last reference, to a box made by `spawn`.
        drop(unsafe { Box::from_raw(task.cast::<TaskCell<F>>().as_ptr()) });
    }
}

static WAKER_VTABLE: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

fn raw_waker(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr() as *const (), &WAKER_VTABLE)
}

/// # Safety
/// `data` is what `raw_waker` stored.
unsafe fn task_of(data: *const ()) -> NonNull<Header> {
    // SAFETY: promised by the caller.
    unsafe { NonNull::new_unchecked(data as *mut Header) }
}

/// # Safety
/// As [`task_of`]; the waker holds a count.
unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned holds a count.
    let task = unsafe { task_of(data) };
    mem::forget(TaskRef::retain(task));
    raw_waker(task)
}

/// # Safety
/// As [`task_of`]; the waker's count is given up.
unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's count is ours now.
    let task = TaskRef(unsafe { task_of(data) });
    task.header().schedule(0);
}

/// # Safety
/// As [`task_of`]; the waker holds a count.
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker holds a count.
    unsafe { task_of(data).as_ref() }.schedule(0);
}

/// # Safety
/// As [`task_of`]; the waker's count is given up.
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's count is ours now.
    drop(TaskRef(unsafe { task_of(data) }));
}

/// Waits for a task: a future that yields its result, or why there is none.
///
/// Dropping the handle detaches the task, which runs on.
///
/// Cancel safety: a `&mut JoinHandle` can be dropped and awaited again; the result is not lost.
///
/// ```
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let sum = runtime.spawn(async { 1 + 2 });
/// assert_eq!(runtime.block_on(sum).unwrap(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JoinHandle<T> {
    task: TaskRef,
    output: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    /// Asks the task to end: its future is dropped in its color, as soon as that color has a turn. A task that has
    /// finished keeps its result.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// task.abort();
    /// assert!(runtime.block_on(task).unwrap_err().is_aborted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn abort(&self) {
        self.task.abort();
    }

    /// A way to abort the task that can be kept apart from this handle; there is an example at [`AbortHandle`].
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.task.clone())
    }

    /// Ready when the task has ended; the result stays for whoever awaits the handle. One waker is kept, that of the last
    /// poll, by this or by awaiting.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async { 7 });
    /// runtime.block_on(std::future::poll_fn(|cx| task.poll_finished(cx)));
    /// assert_eq!(runtime.block_on(task).unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn poll_finished(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_finished() {
            let waker = cx.waker().clone();
            // A joiner looks again after he has stored his waker, see `finish`.
            let old = self.task.header().joiner.lock().replace(waker);
            drop(old);
            if !self.is_finished() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Whether the task has ended and its result can be had without waiting.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async {});
    /// while !task.is_finished() {
    ///     std::thread::yield_now();
    /// }
    /// assert!(runtime.block_on(task).is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.task.is_done()
    }

    /// The color of the task.
    pub fn color(&self) -> &Color {
        self.task.color()
    }
}

impl<T: Send + 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.poll_finished(cx).is_pending() {
            return Poll::Pending;
        }
        let mut output: Option<Result<T, JoinError>> = None;
        // SAFETY: `T` is the output of the task's future (see `spawn`); DONE gives the output to this one handle.
        unsafe { (self.task.header().vtable.take)(self.task.0, (&raw mut output).cast()) };
        Poll::Ready(output.expect("a join handle is not polled again after it was ready"))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // AcqRel: acquires the output if the task is done.
        let header = self.task.header();
        let state = header.state.fetch_and(!JOINED, AcqRel);
        // The joiner's waker may be all that keeps the joiner alive: dropped now, not with the task, so that a chain
        // of tasks does not fall like dominoes.
        let joiner = header.joiner.lock().take();
        drop(joiner);
        if state & DONE != 0 {
            // SAFETY: DONE came first, so the output is ours.
            unsafe { (header.vtable.drop_output)(self.task.0) };
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("color", self.color()).field("finished", &self.is_finished()).finish()
    }
}

const SCHEDULED: u32 = 1;
const ABORTED: u32 = 2;
const DONE: u32 = 4;
const JOINED: u32 = 8;
const BACKGROUND: u32 = 16;
