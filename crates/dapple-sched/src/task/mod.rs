//! Tasks: a future with a color, polled by callbacks of that color.
//!
//! Imports everything from below, and not `state`, which is above. Begin with this file. Then read
//! `rights` for the rights of code to a task, `body` for a task's own part, and `light` for the
//! polling of tasks without a color.
//!
//! A task is one block of memory: a header of 32 bytes, with the node that a wake queues as its
//! first field, and the future, which the output later replaces.
//!
//! # Light tasks
//!
//! A task spawned without a color has a separate one (C3). Until that color is requested, nothing
//! can post to it, hold it or wait for it. So the color would only keep the task's own polls apart,
//! and the task's state alone does that. Such a task is *light*: its color is not made, its node is
//! in a worker's queue of light tasks (`queue`) instead of a color's fifo, and the worker polls it
//! in a stretch with others (`light.rs`).
//!
//! The first thread that asks for the color makes it. From then on callbacks of the color poll the
//! task like any other. That thread sets `COLORED`, which decides in one step which side has the
//! color first:
//!
//! | the light task | the new color is | and becomes free |
//! |---|---|---|
//! | waits, or has ended | `Held` by the thread that made it | at once |
//! | is queued, or is polled by another thread | `Held` for the task | when its turn among the light tasks comes, or this poll ends |
//! | is polled here | `Running`: the poll continues as a turn of the color | when the poll ends |
//!
//! # State bits
//!
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | `SCHEDULED` | spawn, wake, abort; the thread that sets it queues | colored: the poll, when it begins. Light: the poll, when it ends and nothing came meanwhile | colored: the node is queued. Light: it is queued, or polled |
//! | `WOKEN` | wake, abort, if `SCHEDULED` was set | a poll, when it begins or ends | light: poll once more. (Colored: nothing) |
//! | `ABORTED` | abort, shutdown | – | the next callback drops the future instead of polling it |
//! | `COLORED` | spawn, the thread that makes the color | – | polls are callbacks of the color |
//! | `DONE` | the callback that ends the task | – | the output (or error) is stored; the node is never queued again |
//! | `FAILED` | with `DONE` | – | the output is an error |
//! | `JOINER` | the waiter for the end | – | there is a waker in the task's record |
//! | `JOINED` | spawn | dropping the join handle | there is a handle that may take the output |
//! | `BACKGROUND` | spawn | – | a graceful shutdown does not wait for it |
//!
//! The upper half of the word is the worker that polled the light task last. Of "end of the task"
//! and "drop of the handle", the second to change the state drops the output; the end does so
//! before it sets DONE.
//!
//! # Counts
//!
//! One for the task until it has ended, one for each handle and waker, and one for the node while
//! it is in the fifo of a color. (In a queue of light tasks the first one is enough, because a
//! queued light task has not ended.)

pub(crate) mod abort;
mod body;
pub(crate) mod budget;
mod handle;
pub(crate) mod join_error;
pub(crate) mod light;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod memory;
#[cfg(any(dapple_loom, dapple_shuttle))]
#[path = "model_memory.rs"]
mod memory;
mod queue;
mod rights;
mod side;
mod waker;
pub(crate) mod yield_now;

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::color::Color;
use crate::color::cell::{ColorCell, Kind, Links, State};
use crate::color::holder::Holder;
use crate::color::node::{Node, Origin, VTable};
use crate::color::rights::Hold;
use crate::hold;
use crate::hold::ticket::Ticket;
use crate::observe::dump::TaskWait;
use crate::runtime::context;
use crate::runtime::foreign::KeptWaker;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use crate::sync::refs;

pub(crate) use body::spawn;
pub use handle::JoinHandle;
pub(crate) use memory::{FreeTasks, TaskMemory};
pub(crate) use queue::LightQueue;
use rights::Scheduled;
pub(crate) use rights::{LiveTask, Polled, Unfinished};
pub(crate) use side::{LastSide, Side};
pub(crate) use waker::{is_table, is_waker_of_task, wake_if_polled};

/// The part of a task that does not depend on its future.
#[repr(C)]
pub(crate) struct Header {
    /// At offset zero, so that a node is a task. `side` describes its third word.
    node: Node,
    state: AtomicU32,
    refs: AtomicU32,
    #[cfg(any(dapple_loom, dapple_shuttle))]
    shared: Arc<Shared>,
}

/// The functions for a task with a certain type of future.
#[repr(C)]
pub(crate) struct TaskVTable {
    /// First, so that the node's table is the task's.
    node: VTable,
    /// Without a context, drops the future.
    poll: unsafe fn(LiveTask<'_>, Option<&mut Context<'_>>) -> Outcome,
    /// Moves the result, an error if the flag says so, to that address; without an address, drops
    /// it.
    take: unsafe fn(LiveTask<'_>, bool, Option<NonNull<()>>),
    free: unsafe fn(NonNull<Header>),
}

/// The outcome of a poll; the future's place may now hold an output or an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    /// The output is stored.
    Done,
    /// An error is stored.
    Failed,
}

/// A counted reference to a task.
pub(crate) struct TaskRef(NonNull<Header>);

// SAFETY: a task's future and output are `Send` (bounds of `spawn`), its shared parts are atomic or
// locked.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

/// A task as a dump sees it.
pub(crate) struct TaskLook {
    pub(crate) address: usize,
    pub(crate) spawned_from: Option<Origin>,
    /// It is queued, or polled.
    pub(crate) scheduled: bool,
    /// The number of its color, if the color was requested.
    pub(crate) color_id: Option<u64>,
    /// A color that it waits for.
    pub(crate) wait: Option<TaskWait>,
    /// The address of the task that waits for its end.
    pub(crate) joined_by: Option<usize>,
}

/// The color with which a task starts.
pub(crate) enum Start {
    /// A separate color that was not requested, in this runtime.
    Light(Arc<Shared>),
    /// In this color.
    Colored(Color),
}

/// Aborts all remaining tasks; called once all workers have stopped.
pub(crate) fn drop_all(shared: &Shared) {
    shared.tasks.each(|task| task.abort());
}

/// The color of a task; made if it was not requested before.
pub(crate) fn ensure_color(task: LiveTask<'_>) -> &Color {
    match task.color() {
        Some(color) => {
            note_color(task);
            color
        }
        None => make_color(task),
    }
}

/// Another thread has made the color of a task, and is about to set COLORED. If this thread polls
/// the task, it does so here: the color runs posts of this poll before its next poll, which must
/// not be one among the light tasks.
fn note_color(task: LiveTask<'_>) {
    let header = task.header();
    // Relaxed: a thread that has not seen the bit sets it. This thread sets DONE and then polls the
    // task no more: the thread that made the color sees DONE, and releases the color. AcqRel: as in
    // `make_color`.
    if header.state.load(Relaxed) & (COLORED | DONE) == 0 && context::polls_light(task) {
        header.state.fetch_or(COLORED, AcqRel);
    }
}

#[cold]
fn make_color(task: LiveTask<'_>) -> &Color {
    let header = task.header();
    let side = Side::own(header.node.task_word());
    let shared = task.shared().counted();
    let here = context::with_worker(|worker| worker.frame.polls_light(task).then_some(worker.index)).flatten();
    // Relaxed: a hint.
    let home = here.unwrap_or((header.state.load(Relaxed) >> HOME_SHIFT) as usize);
    let begin = |links: &mut Links| match here {
        Some(_) => links.state = State::Running,
        None => links.set_held(Holder::Task, Some(header.node.posted_from())),
    };
    let cell = Color::allocate_as(&shared, Kind::Fresh, memory::id_of(task), home % shared.slots.len(), begin);
    match side.set_color(Color::from_counted(cell)) {
        Ok(color) if here.is_some() => {
            // SAFETY: this thread is in the poll of the task, and the color is `Running` here.
            unsafe { light::go_on_as_turn(task, cell) };
            color
        }
        Ok(color) => {
            // AcqRel: the thread that ends or begins the light task's poll sees the color; or else
            // this thread sees that no poll is in progress. (A wake after the end sets SCHEDULED,
            // too; and the poll itself may have set COLORED before.)
            let old = header.state.fetch_or(COLORED, AcqRel);
            if old & COLORED == 0 && (old & SCHEDULED == 0 || old & DONE != 0) {
                // SAFETY: this thread alone holds it.
                hold::release(unsafe { Hold::new(cell, false) });
            }
            color
        }
        Err(mine) => {
            {
                // A dump may be looking at it.
                let cell = mine.alive();
                let (_, _queue) = shared.lock_home(&cell);
                // SAFETY: the home lock is held; no other thread has the color.
                unsafe { cell.links(|links| links.state = State::Idle) };
            }
            drop(mine);
            note_color(task);
            side.color().expect("another thread has set it")
        }
    }
}

/// The end of a queued task's wait: its turn, or its drop.
const NODE: VTable = VTable {
    // SAFETY: a task's node, with its count; a turn of the task's color calls this.
    run: |node, _| run(unsafe { dequeue(node) }),
    // SAFETY: as above, or the color's holder calls this.
    drop: |node| drop_queued(unsafe { dequeue(node) }),
    waits: None,
};

/// The node has left its color's fifo: clears SCHEDULED. Returns the state before, and the future;
/// `None` if the task has ended.
///
/// # Safety
/// The node is a task's, and the caller gives up its count. This thread is in a turn of the task's
/// color, or holds it.
unsafe fn dequeue(node: NonNull<Node>) -> (TaskRef, Option<(u32, Unfinished)>) {
    let task = TaskRef(node.cast());
    // AcqRel: acquires what the waker did before it woke; a later wake schedules the task again.
    let state = task.header().state.fetch_and(!(SCHEDULED | WOKEN), AcqRel);
    // SAFETY: promised by the caller; the task is not done.
    let unfinished = (state & DONE == 0).then(|| (state, unsafe { Unfinished::in_color(task.task()) }));
    (task, unfinished)
}

fn run((_task, unfinished): (TaskRef, Option<(u32, Unfinished)>)) {
    match unfinished {
        Some((state, task)) if state & ABORTED != 0 => task.abort().finish(),
        Some((_, task)) => poll_colored(task),
        None => {}
    }
}

fn drop_queued((task, unfinished): (TaskRef, Option<(u32, Unfinished)>)) {
    if let Some((_, task)) = unfinished {
        task.drop_unpolled();
    }
    task.header().revoke_grants();
}

/// Polls a task that has a color, and does the work that follows.
fn poll_colored(task: Unfinished) {
    // A grant during this poll may arrive too late for it; then the next poll uses it.
    let granted = task.task().header().take_grants();
    let polled = context::in_task(task, |task| budget::in_poll(|| task.poll()));
    Header::revoke(granted);
    if let Ok(ended) = polled.result() {
        ended.finish();
    }
}

impl Header {
    fn side(&self) -> Option<&Side> {
        Side::of(self.node.task_word())
    }

    /// The line that spawned the task.
    pub(crate) fn spawned_from(&self) -> Origin {
        self.node.plain_origin().unwrap_or_else(|| self.node.posted_from())
    }

    #[inline]
    pub(crate) fn state(&self) -> &AtomicU32 {
        &self.state
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    fn take_grants(&self) -> *mut Ticket {
        // Relaxed: a grant noted before DONE was set is visible, because both go through `state`;
        // for a later one `note_grant` sees DONE. While the task is not done, its next poll sees a
        // grant that this misses.
        match self.side().map(|side| &side.granted) {
            // Acquire pairs with `note_grant`.
            Some(granted) if !granted.load(Relaxed).is_null() => granted.swap(ptr::null_mut(), AcqRel),
            _ => ptr::null_mut(),
        }
    }

    /// Takes back all grants: the task will not use them any more.
    fn revoke_grants(&self) {
        Header::revoke(self.take_grants());
    }

    fn revoke(grants: *mut Ticket) {
        let mut rest = grants;
        while !rest.is_null() {
            // SAFETY: `note_grant` put a counted ticket there.
            let ticket = unsafe { Arc::from_raw(rest) };
            rest = ticket.next_granted.load(Relaxed);
            ticket.revoke();
        }
    }
}

impl TaskRef {
    /// A reference, if this is a task; it may have ended, and the result may be the last reference.
    ///
    /// # Safety
    /// It is a task's memory, in use or free.
    unsafe fn retain_if_any(task: NonNull<Header>) -> Option<TaskRef> {
        // SAFETY: promised by the caller; the count of a free block is 0.
        let refs = unsafe { &(*task.as_ptr()).refs };
        // Acquire pairs with the store that starts the task.
        refs::add_if_any(refs, Acquire).then(|| TaskRef(task))
    }

    fn task(&self) -> LiveTask<'_> {
        // SAFETY: counted.
        unsafe { LiveTask::new(self.0) }
    }

    fn header(&self) -> &Header {
        self.task().header()
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.task().shared()
    }

    /// Makes the task be polled.
    pub(crate) fn wake(&self) {
        self.schedule(0);
    }

    pub(crate) fn abort(&self) {
        self.schedule(ABORTED);
    }

    fn schedule(&self, bits: u32) {
        let header = self.header();
        // Relaxed: the exchange decides.
        let mut old = header.state.load(Relaxed);
        loop {
            let new = bits | old | if old & SCHEDULED == 0 { SCHEDULED } else { WOKEN };
            // An exchange even if nothing changes. AcqRel: releases the waker's earlier writes to
            // the poll that reads the state.
            match header.state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old & (SCHEDULED | DONE) == 0 {
            // SAFETY: we have set SCHEDULED.
            unsafe { Scheduled::new(self.task(), old & COLORED != 0) }.enqueue();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        // Acquire pairs with `finish`: the output is there.
        self.header().state.load(Acquire) & DONE != 0
    }

    pub(crate) fn color(&self) -> &Color {
        ensure_color(self.task())
    }

    /// Notes, for dumps, that the task waits for that color, or for several, and the line that
    /// asked.
    pub(crate) fn note_wait(&self, color_id: Option<u64>, asked_at: Origin) {
        Side::own(self.header().node.task_word()).note_wait(color_id, asked_at);
    }

    /// Notes that that wait is over.
    pub(crate) fn end_wait(&self, asked_at: Origin) {
        if let Some(side) = self.header().side() {
            side.end_wait(asked_at);
        }
    }

    /// The facts about the task that need no poll; `None` if it has ended.
    pub(crate) fn look(&self) -> Option<TaskLook> {
        let header = self.header();
        // Relaxed: for dumps.
        let state = header.state.load(Relaxed);
        let side = header.side();
        (state & DONE == 0).then(|| TaskLook {
            address: self.0.addr().get(),
            // `None` if the task is traced and queued: then the origin is in the trace record,
            // which may be freed at any time.
            spawned_from: header.node.origin().ok(),
            scheduled: state & SCHEDULED != 0,
            color_id: side.and_then(Side::color).map(Color::id),
            wait: side.and_then(Side::wait),
            joined_by: side.and_then(|side| {
                let joiner = side.joiner.lock();
                joiner.as_ref().filter(|waker| is_table(waker.vtable())).map(|waker| waker.data().addr())
            }),
        })
    }

    /// The node that a wake puts into the color's fifo.
    pub(crate) fn node(&self) -> NonNull<Node> {
        self.0.cast()
    }

    /// The task's color.
    pub(crate) fn color_cell(&self) -> NonNull<ColorCell> {
        self.color().cell()
    }

    /// Polls the task here. A poll that is already queued notices the end of the task; it also
    /// handles an abort.
    ///
    /// # Safety
    /// This thread holds the task's color.
    pub(crate) unsafe fn poll_here(&self) {
        // Acquire: as in `run_node`.
        if self.header().state.load(Acquire) & (DONE | ABORTED) == 0 {
            // SAFETY: promised by the caller; the task is not done.
            poll_colored(unsafe { Unfinished::in_color(self.task()) });
        }
    }

    /// Notes a grant, which is taken back if the task is polled and does not use it.
    pub(crate) fn note_grant(&self, ticket: Arc<Ticket>) {
        let header = self.header();
        let granted: &AtomicPtr<Ticket> = &Side::own(header.node.task_word()).granted;
        let ticket = Arc::into_raw(ticket).cast_mut();
        // Relaxed: the exchange decides, and releases the ticket to `revoke_grants`.
        let mut old = granted.load(Relaxed);
        loop {
            // SAFETY: counted; ours until the exchange.
            unsafe { &*ticket }.next_granted.store(old, Relaxed);
            match granted.compare_exchange_weak(old, ticket, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        // A task that has ended is not polled again, and no other thread would take the grant back.
        // A read-modify-write on the word with DONE: either we see DONE, or the end of the task
        // sees the grant. AcqRel pairs with `finish`.
        if header.state.fetch_or(0, AcqRel) & DONE != 0 {
            header.revoke_grants();
        }
    }
}

impl Clone for TaskRef {
    fn clone(&self) -> TaskRef {
        self.task().retain()
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // AcqRel: as in `Arc`.
        if self.header().refs.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the last reference. The task gives its own count up when it is done, after
            // the future was dropped.
            unsafe { (self.task().vtable().free)(self.0) };
        }
    }
}

/// The state of a join, for a waiter with this waker.
pub(crate) fn poll_joined(task: &TaskRef, cx: &Context<'_>) -> Poll<()> {
    if task.is_done() {
        return Poll::Ready(());
    }
    task.shared().check_process();
    let waker = KeptWaker::from(cx.waker());
    let header = task.header();
    let old = Side::own(header.node.task_word()).joiner.lock().replace(waker);
    drop(old);
    // AcqRel pairs with `finish`: either that sees the bit, and our waker, or we see DONE.
    if header.state.fetch_or(JOINER, AcqRel) & DONE != 0 { Poll::Ready(()) } else { Poll::Pending }
}

pub(crate) const SCHEDULED: u32 = 1;
pub(crate) const ABORTED: u32 = 1 << 1;
const DONE: u32 = 1 << 2;
const JOINED: u32 = 1 << 3;
const BACKGROUND: u32 = 1 << 4;
pub(crate) const WOKEN: u32 = 1 << 5;
pub(crate) const COLORED: u32 = 1 << 6;
const JOINER: u32 = 1 << 7;
const FAILED: u32 = 1 << 8;

/// Above these bits is the worker that polled the light task last.
pub(crate) const HOME_SHIFT: u32 = 16;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
const _: () = assert!(size_of::<Header>() == 32);
