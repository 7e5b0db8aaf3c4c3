//! Tasks: a future with a color, polled by callbacks of that color.
//!
//! Imports everything from below. Imports nothing from above, which is `state`.
//! Begin with this file; then read `rights`, what code may do with a task, `body`, a task's own part, and `light`, how a worker polls tasks without a color.
//!
//! A task is one block of memory: a header of 32 bytes whose first field is the node that is queued when the task is woken,
//! and the future, in whose place the output comes.
//!
//! # Light tasks
//!
//! A task that was spawned without a color has one of its own (C3). As long as nobody asks for that color nobody can post to
//! it, hold it or wait for it, so there is nothing that it would have to exclude but the task's own polls; and these exclude
//! each other by the task's state alone. Such a task is *light*: its color is not made, its node stands in a worker's queue
//! of light tasks (`queue`) and not in a color's fifo, and it is polled in a stretch with others (`light.rs`).
//!
//! Whoever asks for the color makes it. From then on the task is polled by callbacks of it like any other. What makes the
//! color sets `COLORED`, which decides in one step who begins with it:
//!
//! | the light task | the new color is | and becomes free |
//! |---|---|---|
//! | waits, or has ended | `Held` by who made it | at once |
//! | is queued, or is polled by another thread | `Held` for the task | when its turn among the light tasks comes, or this poll ends |
//! | is polled here | `Running`: the poll goes on as a turn of the color | when the poll ends |
//!
//! # State bits
//!
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | `SCHEDULED` | spawn, wake, abort; whoever sets it queues | colored: the poll, when it begins. Light: the poll, when it ends and nothing came meanwhile | colored: the node is queued. Light: it is queued, or polled |
//! | `WOKEN` | wake, abort, if `SCHEDULED` was set | a poll, when it begins or ends | light: poll once more. (Colored: nothing) |
//! | `ABORTED` | abort, shutdown | nobody | the next callback drops the future instead of polling it |
//! | `COLORED` | spawn, whoever makes the color | nobody | polls are callbacks of the color |
//! | `DONE` | the callback that ends the task | nobody | the output (or error) is stored; the node is never queued again |
//! | `FAILED` | with `DONE` | nobody | it is an error |
//! | `JOINER` | who waits for the end | nobody | there is a waker in the task's record |
//! | `JOINED` | spawn | dropping the join handle | somebody may take the output |
//! | `BACKGROUND` | spawn | nobody | a graceful shutdown does not wait for it |
//!
//! The upper half of the word is the worker that polled the light task last. Whoever of "end of the task" and "drop of the
//! handle" changes the state second drops the output; the end, before it sets DONE.
//!
//! # Counts
//!
//! One for the task until it has ended, one for each handle and waker, and one for the node while it stands in the fifo of a
//! color. (In a queue of light tasks the first one is enough, as what stands there has not ended.)

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
    /// At offset zero, so that a node is a task. Its third word is described in `side`.
    node: Node,
    state: AtomicU32,
    refs: AtomicU32,
    #[cfg(any(dapple_loom, dapple_shuttle))]
    shared: Arc<Shared>,
}

/// What can be done with a task of some future.
#[repr(C)]
pub(crate) struct TaskVTable {
    /// First, so that the node's is the task's.
    node: VTable,
    /// Without a context, drops the future.
    poll: unsafe fn(LiveTask<'_>, Option<&mut Context<'_>>) -> Outcome,
    /// Moves the result, which is an error or is not, to that address; without one, drops it.
    take: unsafe fn(LiveTask<'_>, bool, Option<NonNull<()>>),
    free: unsafe fn(NonNull<Header>),
}

/// What a poll left in the place of the future.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    /// The output is stored.
    Done,
    /// An error is.
    Failed,
}

/// A counted reference to a task.
pub(crate) struct TaskRef(NonNull<Header>);

// SAFETY: a task's future and output are `Send` (bounds of `spawn`), its shared parts are atomic or locked.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

/// A task as a dump sees it.
pub(crate) struct TaskLook {
    pub(crate) address: usize,
    pub(crate) spawned_from: Option<Origin>,
    /// It is queued, or polled.
    pub(crate) scheduled: bool,
    /// If it was asked for.
    pub(crate) color_id: Option<u64>,
    /// A color that it waits for.
    pub(crate) wait: Option<TaskWait>,
    /// The address of the task that waits for its end.
    pub(crate) joined_by: Option<usize>,
}

/// What a task starts as.
pub(crate) enum Start {
    /// With a color of its own that nobody has asked for, in this runtime.
    Light(Arc<Shared>),
    /// In this color.
    Colored(Color),
}

/// Aborts every task that is left; called once all workers have stopped.
pub(crate) fn drop_all(shared: &Shared) {
    shared.tasks.each(|task| task.abort());
}

/// The color of a task, made where nothing has asked for it before.
pub(crate) fn ensure_color(task: LiveTask<'_>) -> &Color {
    match task.color() {
        Some(color) => {
            note_color(task);
            color
        }
        None => make_color(task),
    }
}

/// Another thread has made the color of a task, and is about to say so in its state. If it is polled here, that is done
/// here: what this poll posts to the color comes before its own next poll, which must not be one among the light tasks.
fn note_color(task: LiveTask<'_>) {
    let header = task.header();
    // Relaxed: a thread that has not seen the bit sets it, and DONE is set by this thread, which then polls it no more: the
    // thread that made the color sees DONE, and lets go. AcqRel: as in `make_color`.
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
            // AcqRel: the thread that ends the light task's poll, or begins it, sees the color; or else we see that there is none.
            // (A wake that comes after the end sets SCHEDULED, too; and the poll itself may have set COLORED before.)
            let old = header.state.fetch_or(COLORED, AcqRel);
            if old & COLORED == 0 && (old & SCHEDULED == 0 || old & DONE != 0) {
                // SAFETY: it is held, and by nobody else.
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

/// What becomes of a queued task: it has its turn, or will not have it any more.
const NODE: VTable = VTable {
    // SAFETY: a task's node, with its count; called by a turn of the task's color.
    run: |node, _| run(unsafe { dequeue(node) }),
    // SAFETY: as above, or by what holds the color.
    drop: |node| drop_queued(unsafe { dequeue(node) }),
    waits: None,
};

/// The node has left its color's fifo: clears SCHEDULED. Returns the state before, and the future; `None` where the task
/// has ended.
///
/// # Safety
/// The node is a task's, with its count the caller's to give. This thread is in a turn of the task's color, or holds it.
unsafe fn dequeue(node: NonNull<Node>) -> (TaskRef, Option<(u32, Unfinished)>) {
    let task = TaskRef(node.cast());
    // AcqRel: acquires what the waker did before it woke; what it does from here on schedules anew.
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

/// Polls a task that has a color, and sees to what follows from it.
fn poll_colored(task: Unfinished) {
    // What is granted while this poll runs may have come too late for it. There is one more, for that grant.
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

    /// Where the task was spawned.
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
        // Relaxed: what was noted before DONE was set is visible, as both go through `state`; of a later one `note_grant`
        // sees DONE. While the task is not done, what is missed now is seen at its next poll.
        match self.side().map(|side| &side.granted) {
            // Acquire pairs with `note_grant`.
            Some(granted) if !granted.load(Relaxed).is_null() => granted.swap(ptr::null_mut(), AcqRel),
            _ => ptr::null_mut(),
        }
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
            ticket.revoke();
        }
    }
}

impl TaskRef {
    /// A reference, if this is a task: perhaps one that has ended, so that what is returned may be the last reference.
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

    /// Sees to it that the task is polled.
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
            // An exchange also where nothing changes. AcqRel: releases what the waker did to the poll that looks at the state.
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

    /// The task waits for that color, or for several, asked for at that line; to be shown.
    pub(crate) fn note_wait(&self, color_id: Option<u64>, asked_at: Origin) {
        Side::own(self.header().node.task_word()).note_wait(color_id, asked_at);
    }

    /// That wait is over.
    pub(crate) fn end_wait(&self, asked_at: Origin) {
        if let Some(side) = self.header().side() {
            side.end_wait(asked_at);
        }
    }

    /// What is known of it without polling it; `None` where it has ended.
    pub(crate) fn look(&self) -> Option<TaskLook> {
        let header = self.header();
        // Relaxed: to be shown.
        let state = header.state.load(Relaxed);
        let side = header.side();
        (state & DONE == 0).then(|| TaskLook {
            address: self.0.addr().get(),
            // Of a task that is traced and queued, the record has it, which may go at any time.
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

    /// What stands in the color's fifo when the task has been woken.
    pub(crate) fn node(&self) -> NonNull<Node> {
        self.0.cast()
    }

    /// The task's color.
    pub(crate) fn color_cell(&self) -> NonNull<ColorCell> {
        self.color().cell()
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
            poll_colored(unsafe { Unfinished::in_color(self.task()) });
        }
    }

    /// Remembers a grant, to be taken back when the task has been polled and has not used it.
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
        self.task().retain()
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // AcqRel: as in `Arc`.
        if self.header().refs.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the last reference. The task's own goes when it is done, so the future is gone.
            unsafe { (self.task().vtable().free)(self.0) };
        }
    }
}

/// What has come of a join, for one who waits with this waker.
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

/// Above these bits stands the worker that polled the light task last.
pub(crate) const HOME_SHIFT: u32 = 16;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
const _: () = assert!(size_of::<Header>() == 32);
