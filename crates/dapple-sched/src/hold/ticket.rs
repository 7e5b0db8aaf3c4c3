//! A queued wait for a color, or for several: what `Colored::with` and its kin post when the color is not free.
//!
//! The ticket's node stands in the color's fifo like any callback. When its turn comes, the waiting task is polled
//! *right there*, inside the color's turn, if the task's own color is free; the turn is over as soon as the closure
//! is, whatever else the task does in that poll. Otherwise the color is handed over and stays `Held` until the task has
//! been polled. A task that is polled and does not use its grant (its `with` future
//! sits unpolled in a `select` or a `join`) loses it: it queues again when it asks again, and nobody hangs on it.
//! What is granted is held until the task has been polled in its own color. That must not be held by somebody who waits
//! in his turn, or they wait in a circle. So the poll goes before all else in the task's color (urgent nodes, `cell.rs`),
//! and a turn that would hand the color to a waiter gives way to it; and where the color is held already, the waiter is
//! outrun: it gives back what it was granted and asks once more, for its own color together with the others. Such a
//! request needs no poll in another color, and cannot be outrun. (Only then is a task's color held while the task waits.)
//!
//! A ticket that asks to read is always handed over: its color then is `Reading`, and others read beside it. The ticket
//! of a request for several colors is not queued itself; the request (`request`) has a node in each color, and comes
//! here once it holds them all.
//! A waiter on another executor cannot be watched like that: it holds the color until it is polled or dropped.
//!
//! # States
//!
//! | state | meaning | who leaves it, to what |
//! |---|---|---|
//! | `QUEUED` | the node is in the fifo | the color's turn: `IN_TURN` or `GRANTED`; the future, dropped: `CANCELED`, or `DROPPING` where several colors are wanted |
//! | `IN_TURN` | the color's turn polls the task right now | the future, in that poll: `USED`; dropped: `CANCELED`; the turn, afterwards: `MISSED`; a turn for several colors that cannot poll the task: `QUEUED` |
//! | `GRANTED` | the color is `Held` for the waiter, whose poll goes before all else in its task's color | the future: `USED`; dropped: `CANCELED` and release; the task's poll, afterwards: `MISSED` and release; whoever hands it over and finds the task's color held: `OUTRUN` and release |
//! | `OUTRUN` | the task's own color was held by somebody else when it was granted what it waits for | the future asks anew, for its own color with the others |
//! | `MISSED` | the chance has passed, or the runtime has stopped | the future asks anew |
//! | `DROPPING` | the future of a wait for several colors is being dropped, and lets go of those that are held | the drop: `CANCELED`; the request, which is over meanwhile: `LEFT` |
//! | `LEFT` | as `DROPPING`; the drop frees the request | nobody |
//! | `USED`, `CANCELED` | over | nobody |

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
    /// The Dapple task that waits, if it is one.
    task: Option<TaskRef>,
    /// What is waited for; alive at least while it is held for this ticket.
    wanted: Wanted,
    /// The line that asked for it.
    origin: Origin,
    /// One color is wanted for reading. (The node says so too, until it gets another purpose.)
    node_reads: bool,
    /// Link in the task's list of grants.
    pub(crate) next_granted: AtomicPtr<Ticket>,
}

// SAFETY: the node is touched by its one owner (the future before the post, then the fifo, then the turn); the rest
// is atomic, locked or immutable.
unsafe impl Send for Ticket {}
// SAFETY: as above.
unsafe impl Sync for Ticket {}

/// What a ticket waits for.
#[derive(Clone, Copy)]
enum Wanted {
    /// One color. The ticket's own node is queued in it, and says whether it is wanted for reading.
    One(NonNull<ColorCell>),
    /// Several; the request has nodes of its own, and the ticket's is not used.
    Many(NonNull<Request>),
}

/// What a ticket waited for, held for the owner of this value.
#[must_use]
pub(crate) enum Grant {
    One(Hold),
    Many(OwnRequest),
}

/// What a ticket waited for, held by the turn that polls the task which waits; whether for reading.
#[must_use]
pub(crate) struct Turn(Wanted, bool);

/// What a waiter finds when it is polled.
pub(crate) enum Chance {
    /// Not yet; the waker is stored.
    Wait,
    /// The color is held by this thread's turn; the ticket is used up.
    InTurn(Turn),
    /// The color is `Held` for the caller; the ticket is used up.
    Granted(Grant),
    /// Ask anew.
    Missed,
    /// Ask anew, for the task's own color with the others.
    Outrun,
}

impl Grant {
    /// Runs `f` with what was granted, and lets go of it.
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
    /// Runs `f`, and lets go of what is held: what else the task does in this poll is not to keep others from it.
    pub(crate) fn with<R>(self, f: impl FnOnce(Held<'_>) -> R) -> R {
        struct Release(Wanted);
        impl Drop for Release {
            fn drop(&mut self) {
                // SAFETY: the turn holds what was wanted, and is further down on this thread's stack.
                unsafe {
                    match self.0 {
                        Wanted::One(color) => _ = context::with_worker(|worker| worker.release_turn(color)),
                        Wanted::Many(request) => OwnRequest::release_in_turn(Alive::new(request)),
                    }
                }
            }
        }
        let _release = Release(self.0);
        // SAFETY: what was wanted is held until `_release` is dropped.
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
        // SAFETY: here and below the node is a ticket's; where the function consumes it, it is the caller's.
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

    /// Queues a wait for `color`, for reading or for oneself, on behalf of whoever polls, who is woken through `waker`.
    pub(crate) fn queue(color: ColorRef<'_>, reads: bool, origin: Origin, waker: &Waker) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::new(Wanted::One(color.ptr()), reads, color.shared, origin, waker));
        ticket.note_wait(Some(color.id));
        post::place(color, ticket.clone().into_node());
        if ticket.task.is_some() {
            placement::hasten(color);
        }
        ticket
    }

    /// The wait of whoever polls for all colors of a request.
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

    /// The node, which carries this count.
    fn into_node(self: Arc<Ticket>) -> OwnedNode {
        let node = Arc::into_raw(self).cast_mut().cast::<Node>();
        // SAFETY: not null, and in no list.
        unsafe { OwnedNode::from_raw(NonNull::new_unchecked(node)) }
    }

    /// The task waits, for that color or for several.
    fn note_wait(&self, color_id: Option<u64>) {
        if let Some(task) = &self.task {
            task.note_wait(color_id, self.origin);
        }
    }

    fn new(wanted: Wanted, reads: bool, shared: *const Shared, origin: Origin, waker: &Waker) -> Ticket {
        let task = context::current_task().filter(|task| ptr::eq(task.shared(), shared));
        // Who waits is polled in turns of others, and where he has been granted something before all else in his color: so
        // he needs one.
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

    /// The color of the Dapple task that waits, if it is one.
    pub(super) fn task_color(&self) -> Option<NonNull<ColorCell>> {
        self.task.as_ref().map(TaskRef::color_cell)
    }

    /// # Safety
    /// The node is the caller's, and belongs to a ticket.
    unsafe fn from_node(node: NonNull<Node>) -> Arc<Ticket> {
        // SAFETY: made by `queue` from an `Arc<Ticket>`, whose first field is the node.
        unsafe { Arc::from_raw(node.as_ptr().cast::<Ticket>()) }
    }

    /// The color's turn has reached the ticket.
    fn run(ticket: Arc<Ticket>) {
        // Acquire pairs with `change`: what came before the ticket was canceled.
        if ticket.state.load(Acquire) != QUEUED || (!ticket.node_reads && ticket.poll_in_turn()) {
            return;
        }
        // The turn stops here, and its end calls `grant`.
        context::with_worker(|worker| worker.hand_off_after_turn(ticket.into_node()));
    }

    /// Who has the color once it is held for the ticket.
    fn holder(&self) -> Holder {
        if self.task.is_some() { Holder::Task } else { Holder::Foreign }
    }

    /// What was wanted.
    ///
    /// # Safety
    /// It is held for the ticket, and the caller gives that up.
    unsafe fn granted(&self) -> Grant {
        // SAFETY: promised by the caller.
        unsafe {
            match self.wanted {
                Wanted::One(color) => Grant::One(Hold::new(color, self.node_reads)),
                Wanted::Many(request) => Grant::Many(OwnRequest::new(Alive::new(request))),
            }
        }
    }

    /// Takes what is held for the ticket, if it was handed over and not used.
    fn take_grant(&self, to: u8) -> Option<Grant> {
        // SAFETY: `hand_over` has left what is held to the thread that makes this change.
        self.change(GRANTED, to).then(|| unsafe { self.granted() })
    }

    /// Whether the future is gone, and what it waited for is its business no longer.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire pairs with `change`.
        self.state.load(Acquire) == CANCELED
    }

    /// Polls the waiting task inside this turn. False: its color is not free, or it is not a task of ours.
    fn poll_in_turn(&self) -> bool {
        self.poll_nested(|| {
            if self.begin_turn() {
                self.wake();
            }
        })
    }

    /// As [`Ticket::poll_in_turn`], where [`Ticket::begin_turn`] was called before.
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

    /// What is wanted is held by this turn. False: the wait is over.
    pub(crate) fn begin_turn(&self) -> bool {
        self.change(QUEUED, IN_TURN)
    }

    /// The turn cannot poll the task, and hands over what is wanted instead. False: the wait was dropped meanwhile.
    pub(super) fn put_off(&self) -> bool {
        self.change(IN_TURN, QUEUED)
    }

    /// Polls the waiting task here and now, whose own color is among those that are held for it.
    ///
    /// # Safety
    /// This thread holds all that was wanted, the task's color is a part of it, and [`Ticket::begin_turn`] was called.
    pub(super) unsafe fn poll_own(&self) {
        let Some(task) = &self.task else { return };
        // SAFETY: promised by the caller.
        unsafe { task.poll_here() };
        self.end_of_turn();
    }

    fn end_of_turn(&self) {
        if self.change(IN_TURN, MISSED) {
            // It was polled elsewhere meanwhile, and waits for news.
            self.wake();
        }
    }

    /// Hands what is held for this ticket to the waiter.
    pub(super) fn hand_over(self: &Arc<Ticket>, grant: Grant) {
        if !self.change(QUEUED, GRANTED) {
            // The waiter has gone.
            return grant.release();
        }
        let Some(task) = &self.task else { return self.wake() };
        task.note_grant(self.clone());
        self.wake();
        // Whatever its waker does: the end of this poll sees to it that the grant is used or given back. It goes before
        // all else in the task's color, as others wait for what is held.
        self.node.become_urgent(Ticket::POLL);
        if let Some(left) = post::place_urgent(task.color().alive(), self.clone().into_node()) {
            // SAFETY: it is a ticket's, and ours again.
            unsafe { Ticket::from_node(left.into_raw()) }.be_outrun();
        }
    }

    /// Somebody holds the task's color, and may wait for what is held here: a circle. The task is to ask anew, for its
    /// own color with the others.
    fn be_outrun(&self) {
        if let Some(grant) = self.take_grant(OUTRUN) {
            grant.release();
            self.wake();
        }
    }

    /// What goes before all else in the task's color, after the grant. If the poll, or an earlier one, does not use that, it is
    /// given back.
    const POLL: &'static VTable = &VTable {
        // SAFETY: the node is a ticket's, and the caller's; a turn of the task's color holds it.
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

    /// Takes back a grant that the task was polled for and did not use.
    pub(crate) fn revoke(&self) {
        if let Some(grant) = self.take_grant(MISSED) {
            grant.release();
            self.wake();
        }
    }

    /// The runtime has stopped: a waiter is to ask anew.
    pub(super) fn miss(&self) {
        if self.change(QUEUED, MISSED) {
            self.wake();
        }
    }

    /// Whether this thread holds what was wanted, which is not the case where the future is polled on another thread
    /// than the one that polls its task in a turn.
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
        // Whoever changes the state takes the waker under its lock afterwards: either he finds this one, or his
        // section came first and the change is visible here.
        self.try_use().unwrap_or(Chance::Wait)
    }

    fn try_use(&self) -> Option<Chance> {
        // Acquire pairs with `change`: that the color is held, before it is used.
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

    /// The task does not wait for this any more, as a dump shows it.
    fn end_wait(&self) {
        if let Some(task) = &self.task {
            task.end_wait(self.origin);
        }
    }

    /// The future is dropped. What is held for it is let go of.
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
        // SAFETY: what was granted was held for the ticket, and now is for us; the future keeps a color that it waits for;
        // while the state is `DROPPING` only this thread frees the request.
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

    /// Whether the wait was dropped. Called when one of several colors is held for it: either this call sees that, or the
    /// thread that drops the wait sees that the color is held.
    pub(crate) fn is_dropped(&self) -> bool {
        // A read-modify-write, so that it and `cancel` have an order. AcqRel: releases that the color is held to `cancel`.
        matches!(self.state.fetch_or(0, AcqRel), DROPPING | CANCELED)
    }

    /// Whether the wait may be dropped at this moment, by this thread or another one, which lets go of what is held then.
    pub(super) fn may_be_dropping(&self) -> bool {
        // Acquire pairs with `change`: what the drop has let go of, if it is through.
        matches!(self.state.load(Acquire), QUEUED | DROPPING)
    }

    /// Whether the caller, which has a request that is over, frees it; otherwise the thread does that drops the wait.
    pub(super) fn is_last(&self) -> bool {
        !self.change(DROPPING, LEFT)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        // AcqRel: what one side did before it changed the state, the other sees after it has changed it further.
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

/// Turns inside turns: past this depth the color is handed over instead.
const NESTING_MAX: usize = 4;
