//! A queued wait for a color, or for several: `Colored::with` and similar functions post one if the
//! color is not free.
//!
//! The ticket's node waits in the color's fifo like any callback. When its turn comes and the
//! task's own color is free, the turn polls the waiting task *right there*; the turn ends with the
//! closure, whatever else the task does in that poll. Otherwise the color is handed over and stays
//! `Held` until the task has been polled. A task that is polled and does not use its grant (its
//! `with` future is not polled in a `select` or a `join`) loses the grant: it queues again when it
//! asks again, and does not block others.
//!
//! The runtime holds a grant until the task has been polled in its own color. If a waiter held the
//! task's color in a separate turn, the two would wait for each other. So the poll goes before all
//! other nodes of the task's color (urgent nodes, `cell.rs`). If a turn would hand that color to a
//! waiter, it first lets the poll run. If another holder has that color already, the waiter is
//! *outrun*: it gives the grant back and asks once more, for its own color together with the
//! others. Such a request needs no poll in another color, and cannot be outrun. (Only then is a
//! task's color held while the task waits.)
//!
//! A ticket that asks to read is always handed over: its color is then `Reading`, and others read
//! it at the same time. The ticket of a request for several colors is not queued; the request
//! (`request`) has a node in each color, and comes here once it holds them all. The runtime cannot
//! watch a waiter on another executor like a task: such a waiter holds the color until it is polled
//! or dropped.
//!
//! # States
//!
//! | state | meaning | left by, to |
//! |---|---|---|
//! | `QUEUED` | the node is in the fifo | the color's turn: `IN_TURN` or `GRANTED`; the future, dropped: `CANCELED`, or `DROPPING` if several colors are wanted |
//! | `IN_TURN` | the color's turn polls the task right now | the future, in that poll: `USED`; dropped: `CANCELED`; the turn, afterwards: `MISSED`; a turn for several colors that cannot poll the task: `QUEUED` |
//! | `GRANTED` | the color is `Held` for the waiter; its poll goes before all else in its task's color | the future: `USED`; dropped: `CANCELED` and release; the task's poll, afterwards: `MISSED` and release; the thread that hands it over and finds the task's color held: `OUTRUN` and release |
//! | `OUTRUN` | the task's own color had another holder at the time of the grant | the future asks again, for its own color with the others |
//! | `MISSED` | the chance has passed, or the runtime has stopped | the future asks again |
//! | `DROPPING` | the future of a wait for several colors is being dropped, and releases those that are held | the drop: `CANCELED`; the request, which is over meanwhile: `LEFT` |
//! | `LEFT` | as `DROPPING`; the drop frees the request | – |
//! | `USED`, `CANCELED` | over | – |

use std::iter;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::Waker;

use crate::Priority;
use crate::color::cell::ColorCell;
use crate::color::holder::Holder;
use crate::color::node::{Node, Origin, OwnedNode, VTable, Waits};
use crate::color::rights::{ColorRef, Hold};
use crate::hold;
use crate::hold::held::Held;
use crate::hold::request::{OwnRequest, Request};
use crate::memory::alive::Alive;
use crate::observe::trace;
use crate::post;
use crate::post::sweep;
use crate::runtime::context;
use crate::runtime::foreign::KeptWaker;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};
use crate::sync::lock::Lock;
use crate::task::TaskRef;
use crate::worker::placement;

/// One wait, shared by the future and by the node in the fifo.
#[repr(C)]
pub(crate) struct Ticket {
    /// At offset zero, so that a node is a ticket.
    node: Node,
    state: AtomicU8,
    waker: Lock<Option<KeptWaker>>,
    /// The Dapple task that waits, unless another executor does.
    task: Option<TaskRef>,
    /// The colors that the ticket waits for; alive at least while they are held for it.
    wanted: Wanted,
    /// The line of the program that asked.
    origin: Origin,
    /// One color is wanted for reading. (The node says so too, until it gets another purpose.)
    node_reads: bool,
    /// Link in the task's list of grants.
    pub(crate) next_granted: AtomicPtr<Ticket>,
}

// SAFETY: only the node's one owner touches it (the future before the post, then the fifo, then the
// turn); the rest is atomic, locked or immutable.
unsafe impl Send for Ticket {}
// SAFETY: as above.
unsafe impl Sync for Ticket {}

/// The colors that a ticket waits for.
#[derive(Clone, Copy)]
enum Wanted {
    /// One color. The ticket's own node is queued in it, and says whether it is wanted for reading.
    One(NonNull<ColorCell>),
    /// Several; the request has nodes of its own, and the ticket's node is unused.
    Many(NonNull<Request>),
}

/// The colors that a ticket waited for, held for the owner of this value.
#[must_use]
pub(crate) enum Grant {
    One(Hold),
    Many(OwnRequest),
}

/// The colors that a ticket waited for, held by the turn that polls the waiting task; and whether
/// for reading.
#[must_use]
pub(crate) struct Turn(Wanted, bool);

/// The answer to a waiter's poll.
pub(crate) enum Chance {
    /// Not yet; the waker is stored.
    Wait,
    /// The color is held by this thread's turn; the ticket is used up.
    InTurn(Turn),
    /// The color is `Held` for the caller; the ticket is used up.
    Granted(Grant),
    /// Ask again.
    Missed,
    /// Ask again, for the task's own color together with the others.
    Outrun,
}

impl Grant {
    /// Runs `f` with the granted colors, and releases them.
    pub(crate) fn with<R>(self, f: impl FnOnce(Held<'_>) -> R) -> R {
        match self {
            Grant::One(hold) if hold.reads() => hold::reading(hold, f),
            Grant::One(hold) => hold::holding(hold, f),
            Grant::Many(request) => request.holding(f),
        }
    }

    pub(crate) fn release(self) {
        match self {
            Grant::One(hold) => hold::release(hold),
            Grant::Many(request) => request.finish(),
        }
    }
}

impl Turn {
    /// Runs `f`, and releases the colors, so that the rest of the task's poll does not keep others
    /// from them.
    pub(crate) fn with<R>(self, f: impl FnOnce(Held<'_>) -> R) -> R {
        struct Release(Wanted);
        impl Drop for Release {
            fn drop(&mut self) {
                // SAFETY: the turn holds the colors, and is further down on this thread's stack.
                unsafe {
                    match self.0 {
                        Wanted::One(color) => _ = context::with_worker(|worker| worker.release_turn(color)),
                        Wanted::Many(request) => OwnRequest::release_in_turn(Alive::new(request)),
                    }
                }
            }
        }
        let _release = Release(self.0);
        // SAFETY: the colors are held until `_release` is dropped.
        unsafe {
            match self.0 {
                Wanted::One(color) => {
                    let cell = ColorRef::new(color);
                    let run = || f(Held::by_turn(cell, self.1));
                    context::in_frame(color, |_| trace::in_line(iter::once(cell), run))
                }
                Wanted::Many(request) => {
                    let request = Alive::new(request);
                    trace::in_line(request.get().colors(), || f(Held::by_request(request)))
                }
            }
        }
    }
}

impl Ticket {
    const VTABLE: &'static VTable = &VTable {
        // SAFETY: here and below the node is a ticket; a function that consumes it owns it.
        run: |node, _| Ticket::run(unsafe { Ticket::from_node(node) }),
        // SAFETY: dropped with the fifo of a stopped runtime.
        drop: |node| unsafe { Ticket::from_node(node) }.miss(),
        waits: Some(&Waits {
            // SAFETY: the color is held for the ticket.
            grant: |node| unsafe {
                let ticket = Ticket::from_node(node);
                ticket.hand_over(ticket.granted());
            },
            // SAFETY: as above.
            holder: |node| unsafe { node.cast::<Ticket>().as_ref() }.holder(),
            granted_when_stopped: false,
            // SAFETY: as above.
            is_dropped: |node| unsafe { node.cast::<Ticket>().as_ref() }.is_over(),
            // SAFETY: taken out of the fifo because the future is gone.
            remove: |node| unsafe { Ticket::from_node(node) }.miss(),
        }),
    };

    /// Queues a wait for `color`, for reading or for writing, on behalf of the polling task;
    /// `waker` wakes it.
    pub(crate) fn queue(color: ColorRef<'_>, reads: bool, origin: Origin, waker: &Waker) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::new(Wanted::One(color.ptr()), reads, color.shared, origin, waker));
        ticket.note_wait(Some(color.id));
        post::place(color, ticket.clone().into_node());
        if ticket.task.is_some() {
            placement::hasten(color);
        }
        ticket
    }

    /// The polling task's wait for all colors of a request.
    pub(super) fn for_request(
        request: &OwnRequest,
        shared: *const Shared,
        origin: Origin,
        waker: &Waker,
    ) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::new(Wanted::Many(request.alive().ptr()), false, shared, origin, waker));
        ticket.note_wait(None);
        ticket
    }

    /// The node, which takes over this count.
    fn into_node(self: Arc<Ticket>) -> OwnedNode {
        let node = Arc::into_raw(self).cast_mut().cast::<Node>();
        // SAFETY: not null, and in no list.
        unsafe { OwnedNode::from_raw(NonNull::new_unchecked(node)) }
    }

    /// Notes, for dumps, that the task waits for that color or for several.
    fn note_wait(&self, color_id: Option<u64>) {
        if let Some(task) = &self.task {
            task.note_wait(color_id, self.origin);
        }
    }

    fn new(wanted: Wanted, reads: bool, shared: *const Shared, origin: Origin, waker: &Waker) -> Ticket {
        let task = context::current_task().filter(|task| ptr::eq(task.shared(), shared));
        // The waiter is polled in turns of other colors, and after a grant before everything else
        // in its own color, so it needs a separate color.
        if let Some(task) = &task {
            task.color();
        }
        let node = Node::new(Ticket::VTABLE, Priority::NORMAL, origin);
        if reads {
            node.set_reads();
        }
        Ticket {
            node,
            node_reads: reads,
            state: AtomicU8::new(QUEUED),
            waker: Lock::new(Some(waker.into())),
            task,
            wanted,
            origin,
            next_granted: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The color of the waiting Dapple task, unless another executor waits.
    pub(super) fn task_color(&self) -> Option<NonNull<ColorCell>> {
        self.task.as_ref().map(TaskRef::color_cell)
    }

    /// # Safety
    /// The caller owns the node, which belongs to a ticket.
    unsafe fn from_node(node: NonNull<Node>) -> Arc<Ticket> {
        // SAFETY: made by `queue` from an `Arc<Ticket>`; the node is its first field.
        unsafe { Arc::from_raw(node.as_ptr().cast::<Ticket>()) }
    }

    /// The color's turn has reached the ticket.
    fn run(ticket: Arc<Ticket>) {
        // Acquire pairs with `change`: it sees all that came before the ticket was canceled.
        if ticket.state.load(Acquire) != QUEUED || (!ticket.node_reads && ticket.poll_in_turn()) {
            return;
        }
        // The turn stops here, and its end calls `grant`.
        context::with_worker(|worker| worker.hand_off_after_turn(ticket.into_node()));
    }

    /// The holder of the color once it is held for the ticket.
    fn holder(&self) -> Holder {
        if self.task.is_some() { Holder::Task } else { Holder::Foreign }
    }

    /// The colors that the ticket wanted.
    ///
    /// # Safety
    /// They are held for the ticket, and the caller gives that up.
    unsafe fn granted(&self) -> Grant {
        // SAFETY: promised by the caller.
        unsafe {
            match self.wanted {
                Wanted::One(color) => Grant::One(Hold::new(color, self.node_reads)),
                Wanted::Many(request) => Grant::Many(OwnRequest::new(Alive::new(request))),
            }
        }
    }

    /// Takes the grant, if it was handed over and not used.
    fn take_grant(&self, to: u8) -> Option<Grant> {
        // SAFETY: `hand_over` left the grant to the one thread that makes this change.
        self.change(GRANTED, to).then(|| unsafe { self.granted() })
    }

    /// Whether the future was dropped or no longer waits for a grant.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire pairs with `change`.
        self.state.load(Acquire) == CANCELED
    }

    /// Polls the waiting task inside this turn. False if the task's color is not free, or the
    /// waiter is no Dapple task.
    fn poll_in_turn(&self) -> bool {
        self.poll_nested(|| {
            if self.begin_turn() {
                self.wake();
            }
        })
    }

    /// As [`Ticket::poll_in_turn`], after a call of [`Ticket::begin_turn`].
    pub(super) fn poll_in_begun_turn(&self) -> bool {
        self.poll_nested(|| self.wake())
    }

    fn poll_nested(&self, begun: impl FnOnce()) -> bool {
        let Some(task) = &self.task else { return false };
        if context::depth() >= NESTING_MAX {
            return false;
        }
        let polled = context::with_worker(|worker| worker.nested_turn(task, begun));
        if polled != Some(true) {
            return false;
        }
        self.end_of_turn();
        true
    }

    /// This turn holds the wanted colors. False if the wait is over.
    pub(crate) fn begin_turn(&self) -> bool {
        self.change(QUEUED, IN_TURN)
    }

    /// The turn cannot poll the task, and hands the colors over instead. False if the wait was
    /// dropped meanwhile.
    pub(super) fn put_off(&self) -> bool {
        self.change(IN_TURN, QUEUED)
    }

    /// Polls the waiting task at once; its own color is among those that are held for it.
    ///
    /// # Safety
    /// This thread holds all wanted colors, the task's color is among them, and
    /// [`Ticket::begin_turn`] was called.
    pub(super) unsafe fn poll_own(&self) {
        let Some(task) = &self.task else { return };
        // SAFETY: promised by the caller.
        unsafe { task.poll_here() };
        self.end_of_turn();
    }

    fn end_of_turn(&self) {
        if self.change(IN_TURN, MISSED) {
            // The task was polled elsewhere meanwhile, and waits for a wake.
            self.wake();
        }
    }

    /// Hands the colors held for this ticket to the waiter.
    pub(super) fn hand_over(self: &Arc<Ticket>, grant: Grant) {
        if !self.change(QUEUED, GRANTED) {
            // The waiter has gone.
            return grant.release();
        }
        let Some(task) = &self.task else { return self.wake() };
        task.note_grant(self.clone());
        self.wake();
        // The waker may do anything: after the poll the grant is used or returned. The poll goes
        // before everything else in the task's color, because others wait for the granted colors.
        self.node.become_urgent(Ticket::POLL);
        if let Some(left) = post::place_urgent(task.color().alive(), self.clone().into_node()) {
            // SAFETY: the node is a ticket, and ours again.
            unsafe { Ticket::from_node(left.into_raw()) }.be_outrun();
        }
    }

    /// Another holder has the task's color, and may wait for the colors held here: a cycle. The
    /// task asks again, for its own color together with the others.
    fn be_outrun(&self) {
        if let Some(grant) = self.take_grant(OUTRUN) {
            grant.release();
            self.wake();
        }
    }

    /// The node that goes before everything else in the task's color after a grant. It polls the
    /// task; if neither this poll nor an earlier one uses the grant, it gives the grant back.
    const POLL: &'static VTable = &VTable {
        // SAFETY: the caller owns the node, which is a ticket; a turn of the task's color holds it.
        run: |node, _| unsafe {
            let ticket = Ticket::from_node(node);
            // Acquire pairs with `change`.
            if let Some(task) = ticket.task.as_ref().filter(|_| ticket.state.load(Acquire) == GRANTED) {
                task.poll_here();
            }
            ticket.revoke();
        },
        // SAFETY: as above; the task will not be polled.
        drop: |node| unsafe { Ticket::from_node(node) }.revoke(),
        waits: None,
    };

    /// Takes back a grant that the task did not use in its poll.
    pub(crate) fn revoke(&self) {
        if let Some(grant) = self.take_grant(MISSED) {
            grant.release();
            self.wake();
        }
    }

    /// The runtime has stopped: the waiter has to ask again.
    pub(super) fn miss(&self) {
        if self.change(QUEUED, MISSED) {
            self.wake();
        }
    }

    /// Whether this thread holds the wanted colors. It does not if a thread polls the future, and
    /// another one polls its task in a turn.
    fn held_here(&self) -> bool {
        match self.wanted {
            Wanted::One(color) => context::holds(color),
            Wanted::Many(request) => context::with_frame_of(request, |_| ()).is_some(),
        }
    }

    /// Called by the future's poll.
    pub(crate) fn poll(&self, waker: &Waker) -> Chance {
        if let Some(chance) = self.try_use() {
            return chance;
        }
        let new = KeptWaker::from(waker);
        let old = self.waker.lock().replace(new);
        drop(old);
        // A thread that changes the state takes the waker under the waker's lock afterwards. So
        // either it finds this waker, or its section came first and the change is visible here.
        self.try_use().unwrap_or(Chance::Wait)
    }

    fn try_use(&self) -> Option<Chance> {
        // Acquire pairs with `change`: the color is held before it is used.
        let chance = match self.state.load(Acquire) {
            GRANTED => self.take_grant(USED).map(Chance::Granted),
            IN_TURN if self.held_here() && self.change(IN_TURN, USED) => {
                Some(Chance::InTurn(Turn(self.wanted, self.node_reads)))
            }
            MISSED => Some(Chance::Missed),
            OUTRUN => Some(Chance::Outrun),
            _ => None,
        };
        if chance.is_some() {
            self.end_wait();
        }
        chance
    }

    /// Notes, for dumps, that the task no longer waits for this.
    fn end_wait(&self) {
        if let Some(task) = &self.task {
            task.end_wait(self.origin);
        }
    }

    /// The future is dropped; releases everything that is held for it.
    pub(crate) fn give_up(&self) {
        self.end_wait();
        // Acquire, here and below, pairs with `change`.
        let mut state = self.state.load(Acquire);
        loop {
            let to = match (state, self.wanted) {
                (QUEUED, Wanted::Many(_)) => DROPPING,
                (QUEUED | IN_TURN | GRANTED, _) => CANCELED,
                _ => return,
            };
            // AcqRel: as in `change`.
            match self.state.compare_exchange_weak(state, to, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // SAFETY: a grant was held for the ticket, and now is for this thread; the future keeps a
        // color that it waits for alive; while the state is `DROPPING` only this thread frees the
        // request.
        unsafe {
            match (state, self.wanted) {
                (GRANTED, _) => self.granted().release(),
                (QUEUED, Wanted::One(color)) => sweep::one(ColorRef::new(color)),
                (QUEUED, Wanted::Many(request)) => {
                    let alive: Alive<'_, Request> = Alive::new(request);
                    let crowded = alive.crowded();
                    alive.give_back();
                    if self.change(DROPPING, CANCELED) {
                        crowded.into_iter().for_each(sweep::sweep);
                    } else {
                        Request::free(request);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether the wait was dropped. Called when one of several colors is held for the ticket:
    /// either this call sees the drop, or the dropping thread sees the hold.
    pub(crate) fn is_dropped(&self) -> bool {
        // A read-modify-write, so that this and `cancel` have an order. AcqRel: releases to
        // `cancel` that the color is held.
        matches!(self.state.fetch_or(0, AcqRel), DROPPING | CANCELED)
    }

    /// Whether a thread may be dropping the wait at this moment, and releasing the colors that are
    /// held for it.
    pub(super) fn may_be_dropping(&self) -> bool {
        // Acquire pairs with `change`: the releases of a drop that has ended.
        matches!(self.state.load(Acquire), QUEUED | DROPPING)
    }

    /// Whether the caller, with a request that is over, has to free it; otherwise the thread that
    /// drops the wait frees it.
    pub(super) fn is_last(&self) -> bool {
        !self.change(DROPPING, LEFT)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        // AcqRel: each side sees what the other did before it changed the state.
        self.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

const QUEUED: u8 = 0;
const IN_TURN: u8 = 1;
const GRANTED: u8 = 2;
const USED: u8 = 3;
const CANCELED: u8 = 4;
const MISSED: u8 = 5;
const OUTRUN: u8 = 6;
const DROPPING: u8 = 7;
const LEFT: u8 = 8;

/// Limit of nested turns: beyond this depth the color is handed over instead.
const NESTING_MAX: usize = 4;
