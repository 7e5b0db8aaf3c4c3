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
use crate::color::node::{Node, Origin, VTable, Waits};
use crate::hold;
use crate::hold::request::{self, Request};
use crate::observe::trace;
use crate::post;
use crate::post::sweep;
use crate::runtime::context;
use crate::runtime::foreign::KeptWaker;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};
use crate::sync::lock::Lock;
use crate::task::TaskRef;
use crate::worker::Worker;

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

/// What a waiter finds when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chance {
    /// Not yet; the waker is stored.
    Wait,
    /// The color is held by this thread's frame; the ticket is used up.
    InTurn,
    /// The color is `Held` for the caller; the ticket is used up.
    Granted,
    /// Ask anew.
    Missed,
    /// Ask anew, for the task's own color with the others.
    Outrun,
}

impl Ticket {
    const VTABLE: &'static VTable = &VTable {
        run: Ticket::run,
        drop: Ticket::drop_node,
        waits: Some(&Waits {
            grant: Ticket::grant,
            holder: Ticket::holder,
            granted_when_stopped: false,
            is_dropped: Ticket::is_canceled,
            remove: Ticket::drop_node,
        }),
    };

    /// Queues a wait for `color`, for reading or for oneself, on behalf of whoever polls, who is woken through `waker`.
    ///
    /// # Safety
    /// `color` is alive for the call.
    pub(crate) unsafe fn queue(color: NonNull<ColorCell>, reads: bool, origin: Origin, waker: &Waker) -> Arc<Ticket> {
        // SAFETY: promised by the caller.
        let shared = unsafe { color.as_ref() }.shared;
        let ticket = Arc::new(Ticket::new(Wanted::One(color), reads, shared, origin, waker));
        let node = Arc::into_raw(ticket.clone()).cast_mut().cast::<Node>();
        // SAFETY: `Arc::into_raw` is not null; the node carries a count of its own and is given to the color.
        unsafe { post::place(color, NonNull::new_unchecked(node)) };
        ticket
    }

    /// The wait of whoever polls for all colors of a request.
    ///
    /// # Safety
    /// `request` is alive until it has been released through the ticket.
    pub(super) unsafe fn for_request(
        request: NonNull<Request>,
        shared: *const Shared,
        origin: Origin,
        waker: &Waker,
    ) -> Arc<Ticket> {
        Arc::new(Ticket::new(Wanted::Many(request), false, shared, origin, waker))
    }

    fn new(wanted: Wanted, reads: bool, shared: *const Shared, origin: Origin, waker: &Waker) -> Ticket {
        let task = context::current_task().map(TaskRef::retain).filter(|task| ptr::eq(task.shared(), shared));
        // Who waits is polled in turns of others, and where he has been granted something before all else in his color: so
        // he needs one.
        if let Some(task) = &task {
            task.color();
            let color_id = match wanted {
                // SAFETY: promised by the caller of `queue`.
                Wanted::One(color) => Some(unsafe { color.as_ref() }.id),
                Wanted::Many(_) => None,
            };
            task.note_wait(color_id, origin);
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
    ///
    /// # Safety
    /// As [`Ticket::from_node`]; called by a turn of the color.
    unsafe fn run(node: NonNull<Node>, _: &Worker) {
        // SAFETY: promised by the caller.
        let ticket = unsafe { Ticket::from_node(node) };
        let reads = ticket.node_reads;
        // Acquire pairs with `change`: what came before the ticket was canceled.
        if ticket.state.load(Acquire) != QUEUED || (!reads && ticket.poll_in_turn()) {
            return;
        }
        // The pointer that was posted, with the count: a later `from_node` may free the ticket through it.
        std::mem::forget(ticket);
        // The turn stops here, and its end calls `grant`.
        context::with_worker(|worker| worker.hand_off_after_turn(node));
    }

    /// Who has the color once it is held for the ticket.
    ///
    /// # Safety
    /// The node is a ticket's, and alive.
    unsafe fn holder(node: NonNull<Node>) -> Holder {
        // SAFETY: promised by the caller.
        let ticket = unsafe { node.cast::<Ticket>().as_ref() };
        if ticket.task.is_some() { Holder::Task } else { Holder::Foreign }
    }

    /// Whether the future is gone.
    ///
    /// # Safety
    /// The node is a ticket's, and alive.
    unsafe fn is_canceled(node: NonNull<Node>) -> bool {
        // SAFETY: promised by the caller.
        unsafe { node.cast::<Ticket>().as_ref() }.is_over()
    }

    /// Whether the future is gone, and what it waited for is its business no longer.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire pairs with `change`.
        self.state.load(Acquire) == CANCELED
    }

    /// The color is held for the ticket.
    ///
    /// # Safety
    /// As [`Ticket::from_node`].
    unsafe fn grant(node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        let ticket = unsafe { Ticket::from_node(node) };
        // SAFETY: as above; what was wanted is held for the ticket.
        unsafe { ticket.hand_over() };
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
        // SAFETY: it is of this worker's runtime (see `new`).
        let polled = context::with_worker(|worker| unsafe { worker.nested_turn(task, begun) });
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
    ///
    /// # Safety
    /// All that was wanted is held by the caller, who gives it up.
    pub(super) unsafe fn hand_over(self: &Arc<Ticket>) {
        if !self.change(QUEUED, GRANTED) {
            // SAFETY: promised by the caller; the waiter has gone.
            return unsafe { self.release() };
        }
        let Some(task) = &self.task else { return self.wake() };
        task.note_grant(self.clone());
        self.wake();
        // Whatever its waker does: the end of this poll sees to it that the grant is used or given back. It goes before
        // all else in the task's color, as others wait for what is held.
        self.node.become_urgent(Ticket::POLL);
        let node = Arc::into_raw(self.clone()).cast_mut().cast::<Node>();
        // SAFETY: the task keeps its color alive; the node is in no list, and carries a count.
        unsafe {
            let node = NonNull::new_unchecked(node);
            if !post::place_urgent(task.color_cell(), node) {
                Ticket::from_node(node).be_outrun();
            }
        }
    }

    /// Somebody holds the task's color, and may wait for what is held here: a circle. The task is to ask anew, for its
    /// own color with the others.
    fn be_outrun(&self) {
        if self.change(GRANTED, OUTRUN) {
            // SAFETY: the exchange makes the hold ours.
            unsafe { self.release() };
            self.wake();
        }
    }

    const POLL: &'static VTable = &VTable { run: Ticket::run_poll, drop: Ticket::drop_poll, waits: None };

    /// A turn of the task's color, after the grant.
    ///
    /// # Safety
    /// As [`Ticket::from_node`]; called by a turn of the task's color.
    unsafe fn run_poll(node: NonNull<Node>, _: &Worker) {
        // SAFETY: promised by the caller.
        let ticket = unsafe { Ticket::from_node(node) };
        // Acquire pairs with `change`.
        if let Some(task) = ticket.task.as_ref().filter(|_| ticket.state.load(Acquire) == GRANTED) {
            // SAFETY: a turn of the task's color holds it.
            unsafe { task.poll_here() };
        }
        // SAFETY: it was handed over; if the poll, or an earlier one, has not used it, it is given back.
        unsafe { ticket.revoke() };
    }

    /// The task will not be polled.
    ///
    /// # Safety
    /// As [`Ticket::from_node`]; the ticket was handed what it wanted.
    unsafe fn drop_poll(node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe { Ticket::from_node(node).revoke() };
    }

    /// Takes back a grant that the task was polled for and did not use.
    ///
    /// # Safety
    /// The ticket was handed its color.
    pub(crate) unsafe fn revoke(&self) {
        if self.change(GRANTED, MISSED) {
            // SAFETY: the exchange makes the hold ours.
            unsafe { self.release() };
            self.wake();
        }
    }

    /// The runtime has stopped: a waiter is to ask anew.
    pub(super) fn miss(&self) {
        if self.change(QUEUED, MISSED) {
            self.wake();
        }
    }

    /// Lets go of what was wanted.
    ///
    /// # Safety
    /// It is held by the caller, who forgets it; a request is gone afterwards.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: promised by the caller.
        unsafe {
            match self.wanted {
                Wanted::One(color) if self.node_reads => hold::release_read(color),
                Wanted::One(color) => hold::release(color),
                Wanted::Many(request) => Request::finish(request),
            }
        }
    }

    /// Runs `f` with what was granted, and lets go of it.
    ///
    /// # Safety
    /// The ticket's future was told [`Chance::Granted`].
    pub(crate) unsafe fn with_granted<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: promised by the caller: it is held for us.
        unsafe {
            match self.wanted {
                Wanted::One(color) if self.node_reads => hold::reading(color, f),
                Wanted::One(color) => hold::holding(color, f),
                Wanted::Many(request) => request::holding_all(request, f),
            }
        }
    }

    /// Runs `f` in the turn that polls the waiter, and lets go of what is held: what else the task does in this poll is
    /// not to keep others from it.
    ///
    /// # Safety
    /// The ticket's future was told [`Chance::InTurn`], in this poll.
    pub(crate) unsafe fn with_turn<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Release(Wanted);
        impl Drop for Release {
            fn drop(&mut self) {
                // SAFETY: promised by the caller of `with_turn`.
                unsafe {
                    match self.0 {
                        Wanted::One(color) => _ = context::with_worker(|worker| worker.release_turn(color)),
                        Wanted::Many(request) => Request::release_in_turn(request),
                    }
                }
            }
        }
        let _release = Release(self.wanted);
        // SAFETY: what was wanted is held until `_release` is dropped.
        unsafe {
            match self.wanted {
                Wanted::One(color) => context::in_frame(color, false, |_| trace::in_line(iter::once(color), f)),
                Wanted::Many(request) => trace::in_line(request.as_ref().colors(), f),
            }
        }
    }

    /// Whether this thread holds what was wanted, which is not the case where the future is polled on another thread
    /// than the one that polls its task in a turn.
    fn held_here(&self) -> bool {
        match self.wanted {
            Wanted::One(color) => context::holds(color),
            Wanted::Many(request) => context::frame_of_request(request).is_some(),
        }
    }

    /// Dropped with the fifo of a stopped runtime, or taken out of it because the future is gone.
    ///
    /// # Safety
    /// As [`Ticket::from_node`].
    unsafe fn drop_node(node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        let ticket = unsafe { Ticket::from_node(node) };
        ticket.miss();
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
            GRANTED if self.change(GRANTED, USED) => Some(Chance::Granted),
            IN_TURN if self.held_here() && self.change(IN_TURN, USED) => Some(Chance::InTurn),
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
                (GRANTED, _) => self.release(),
                (QUEUED, Wanted::One(color)) => sweep::one(color),
                (QUEUED, Wanted::Many(request)) => {
                    let crowded = request.as_ref().crowded();
                    Request::give_back(request);
                    if self.change(DROPPING, CANCELED) {
                        sweep::each(&crowded);
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

    /// Whether the wait is being dropped at this moment, by this thread or another one.
    pub(super) fn is_being_dropped(&self) -> bool {
        // Acquire pairs with `change`: what the drop has let go of, if it is through.
        self.state.load(Acquire) == DROPPING
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
