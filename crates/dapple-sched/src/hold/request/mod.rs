//! Requests: callbacks and waits that hold several colors at once (C4), or that read and are posted
//! (C5).
//!
//! A request has a node, its *member*, for each of its colors. All colors accept it in one step.
//! The poster takes the locks of all their homes, in the order of the workers. It holds each free
//! color for the request at once; each other color gets the member in its fifo (or, while another
//! worker runs the color, in its inbox). Two requests with colors in common have the locks of those
//! colors' homes in common, so all shared colors accept them in the same order. All requests thus
//! have one common order of acceptance, without cycles, and no request waits for one that was
//! accepted later. So there is no deadlock, whatever the order in which colors are named, and no
//! color has to be given back.
//!
//! # States
//!
//! | state | `pending` | left by, to |
//! |---|---|---|
//! | new | – | `submit`: waiting; or complete, if all colors are free and no color has to run it |
//! | waiting | members that wait in fifos | the turn that reaches a member while others wait: the color is `Held` or `Reading`, one less (`grant`); the turn that reaches the last one, for writing: running |
//! | complete | 0 | `complete`: the runner (a color held for writing) is queued again, the member in front: running; a request that only reads gets a color of its own to run in: running; a waiter on several colors: handed over (`ticket.rs`) |
//! | running | 0 | the end of the closure: ending, if the turn has no more to run and holds one other color, at home on this worker; otherwise all colors but that of the turn are released, and the memory is freed |
//! | ending | – | the memory is freed, and the end of the turn releases the other color with its own (`Worker::lets_go_after_turn`) |
//! | stopped | 0 | its runner's worker has stopped: the closure is dropped while all colors are held, then they are released |
//!
//! Usually all colors are free. Then the color that runs the request (the *runner*) is queued and
//! the others are held. So a request costs one lock, one node in one fifo and one turn, at the end
//! of which the other color is released.
//!
//! The poster writes `pending` under the locks, before any thread can reach a member. After that,
//! `grant` counts down when a color is held (AcqRel: a thread that sees 1 or 0 also sees that the
//! other colors are held). If a turn finds that it is the last one, it skips the countdown.

mod place;
mod posted;

pub(crate) use posted::{submit_closure, try_hold_all, wait_for_all};

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::color::cell::{ColorCell, Kind};
use crate::color::holder::Holder;
use crate::color::node::{Node, Origin, OwnedNode, VTable, Waits};
use crate::color::rights::{ColorRef, Hold, HomeGuard};
use crate::color::{Color, Priority};
use crate::hold::ticket::{Grant, Ticket};
use crate::hold::{self, Ended};
use crate::memory::alive::Alive;
use crate::observe::trace::{self, Record};
use crate::post::afterwards::Afterwards;
use crate::post::sweep;
use crate::runtime::context::{self, Frame};
use crate::runtime::panics;
use crate::runtime::shared::Shared;
use crate::runtime::switches;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use crate::worker::run_queue::RunQueue;
use crate::worker::{self, Worker};

/// A set of colors to be held, and the closure or waiter that wants them.
pub(crate) struct Request {
    /// Number of members that have no hold of their color yet; see the table.
    pending: AtomicU32,
    /// One member for each color, each color once; in the same allocation, or owned by it.
    members: Cell<*const [Member]>,
    shared: *const Shared,
    /// The waiter, unless the request is a posted closure.
    ticket: Cell<*const Ticket>,
    /// The color with the turn in which the waiter is polled.
    turn: Cell<Option<NonNull<ColorCell>>>,
    work: &'static Work,
    origin: Origin,
    /// One of the colors is pinned.
    pinned: bool,
    /// The trace record of the posted closure, or null.
    record: Cell<*mut Record>,
    /// Models keep the memory of a freed request in order to detect a use after free.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    buried: std::sync::atomic::AtomicBool,
}

/// The functions for the closure of a request and for its memory.
struct Work {
    /// Calls the closure.
    run: unsafe fn(NonNull<Request>),
    /// Drops the closure.
    drop: unsafe fn(NonNull<Request>),
    /// Frees the request after its closure is gone.
    free: unsafe fn(NonNull<Request>),
}

/// The priority of a request for colors, and its line in the program. Public in name only, as
/// [`Member`].
#[derive(Clone, Copy)]
pub struct Ask {
    pub(crate) priority: Priority,
    pub(crate) origin: Origin,
}

/// One color of a request. Public only in name: [`crate::Set`] is made of them, and code outside
/// cannot reach this module.
#[repr(C)]
pub struct Member {
    /// At offset zero, so that a node is a member.
    node: Node,
    request: Cell<*const Request>,
    color: NonNull<ColorCell>,
    /// Whether the color is `Held` (or `Reading`) for the member; the thread that ends this
    /// releases the color.
    held: AtomicBool,
}

impl Member {
    const VTABLE: &'static VTable = &VTable {
        run: Member::run,
        // Never called: even then the member is granted its color, so that the closure is dropped
        // while all colors are held.
        drop: Member::grant,
        waits: Some(&Waits {
            grant: Member::grant,
            holder: |_| Holder::Request,
            granted_when_stopped: true,
            is_dropped: Member::is_dropped,
            remove: Member::remove,
        }),
    };

    #[inline]
    pub(crate) fn new(color: ColorRef<'_>, reads: bool, ask: Ask) -> Member {
        let node = Node::new(Member::VTABLE, ask.priority, ask.origin);
        if reads {
            node.set_reads();
        }
        Member { node, request: Cell::new(ptr::null()), color: color.ptr(), held: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'_> {
        // SAFETY: the color is alive until the member has been submitted (the caller has handles),
        // and then while the color is held for the request or has the member in its fifo.
        let color = unsafe { ColorRef::new(self.color) };
        color.check_alive();
        color
    }

    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.node.reads()
    }

    /// Before it is submitted.
    pub(crate) fn set_reads(&mut self, reads: bool) {
        let ask = Ask { priority: Priority::new(self.node.priority()), origin: self.node.posted_from() };
        *self = Member::new(self.color(), reads, ask);
    }

    /// Whether the color is held for the member.
    #[inline]
    fn is_held(&self) -> bool {
        // Relaxed: the thread that uses the answer came to the request after the threads that held
        // its colors, or takes the hold by an exchange.
        self.held.load(Relaxed)
    }

    /// Stores the hold of the color in the request.
    #[inline]
    fn keep(&self, hold: Hold) {
        assert!(hold.color().ptr() == self.color, "the hold is one of this color");
        // Release pairs with `take_hold` by a thread that drops the wait. In all other cases the
        // countdown of `pending`, or the lock of the color's home, passes the hold on.
        self.held.store(true, Release);
    }

    /// Notes, before the request is accepted, whether the color is free and will be held for the
    /// member.
    fn mark_free(&self, free: bool) {
        // Relaxed: the request is new.
        self.held.store(free, Relaxed);
    }

    /// Takes the hold of the color, unless another thread has done so.
    fn take_hold(&self) -> Option<Hold> {
        // AcqRel pairs with `keep`: the color is held before it is released. SAFETY: `keep` was
        // given the hold, and the exchange gives it to one thread.
        self.held.swap(false, AcqRel).then(|| unsafe { self.hold() })
    }

    /// As [`Member::take_hold`], when no other thread can take it.
    #[inline]
    fn take_hold_alone(&self, _: Sole<'_>) -> Option<Hold> {
        let held = self.is_held();
        // Relaxed: this thread has the request.
        self.held.store(false, Relaxed);
        // SAFETY: as in `take_hold`, and no other thread has the request.
        held.then(|| unsafe { self.hold() })
    }

    /// # Safety
    /// The color is held for the member, and the caller gives that up.
    #[inline]
    unsafe fn hold(&self) -> Hold {
        // SAFETY: promised by the caller.
        unsafe { Hold::new(self.color, self.reads()) }
    }

    /// The node, to be queued.
    ///
    /// # Safety
    /// The node is in no list, and the caller's request stays alive until the node has been
    /// reached.
    #[inline]
    unsafe fn queued(&self) -> OwnedNode {
        // SAFETY: promised by the caller.
        unsafe { OwnedNode::from_raw(NonNull::from(self).cast()) }
    }

    /// Releases the color if its home is the worker with this lock, and that worker has not
    /// stopped. False if it is at home elsewhere.
    #[inline]
    fn release_at_home(&self, sole: Sole<'_>, queue: &mut RunQueue, afterwards: &mut Afterwards) -> bool {
        let Some(mut home) = HomeGuard::of(queue, self.color()).filter(|home| !home.is_closed()) else { return false };
        let Some(hold) = self.take_hold_alone(sole) else { return true };
        match home.end_hold(hold) {
            Ended::Readers | Ended::Idle(None) => {}
            Ended::Idle(Some(dead)) => afterwards.dead.push(dead),
            Ended::Waits(hold) => home.queue_held(hold),
        }
        true
    }

    /// The request, which lives as long as its members.
    fn request(&self) -> Alive<'_, Request> {
        let request = NonNull::new(self.request.get().cast_mut());
        // SAFETY: members stay in the request's memory, or next to it, until it is freed.
        unsafe { Alive::new(request.expect("a member that is queued belongs to a request")) }
    }

    /// # Safety
    /// The node is a member, and alive for `'a`.
    unsafe fn of_node<'a>(node: NonNull<Node>) -> Alive<'a, Member> {
        // SAFETY: promised by the caller; a member begins with its node.
        unsafe { Alive::new(node.cast()) }
    }

    /// The color's turn has reached the member.
    ///
    /// # Safety
    /// The node is a member and the caller gives it up. The caller is a turn of the member's color
    /// (or, for a request that only reads, of the color that runs it).
    unsafe fn run(node: NonNull<Node>, worker: &Worker) {
        // SAFETY: promised by the caller; the request is alive while one of its members has not
        // been reached.
        let (member, node) = unsafe { (Member::of_node(node), OwnedNode::from_raw(node)) };
        let request = member.get().request();
        // Acquire pairs with `grant`: the other colors are held.
        let pending = request.pending().load(Acquire);
        if pending > 1 || (pending == 1 && (member.reads() || !request.may_run_here())) {
            // The turn ends here, and its end calls `grant`.
            worker.hand_off_after_turn(node);
            return;
        }
        // Relaxed: see `grant`.
        request.pending().store(0, Relaxed);
        // SAFETY: all other colors are held, and this turn has the one of the node.
        let request = unsafe { OwnRequest::new(request) };
        if request.ticket().is_some() {
            request.poll_waiter(member.color, node);
        } else {
            request.run_closure(Some((member.color(), worker)));
        }
    }

    /// The color is held for the request.
    ///
    /// # Safety
    /// The color is held, the node is a member, the caller gives both up and holds no lock.
    unsafe fn grant(node: NonNull<Node>) {
        // SAFETY: promised by the caller; the request is alive while one of its members has not
        // been counted.
        let (member, hold) = unsafe {
            let member = Member::of_node(node);
            (member.get(), member.hold())
        };
        let request = member.request();
        member.keep(hold);
        if request.ticket().is_some_and(Ticket::is_dropped) {
            // The thread that dropped the wait may have missed that this color is held.
            member.take_hold().into_iter().for_each(hold::release);
        }
        // Relaxed: this worker wrote 0 in the turn that has just ended; or it was written under the
        // lock of the runner's home, from which the node was taken.
        let complete = request.pending().load(Relaxed) == 0;
        // AcqRel: releases this color to the thread that completes the request, and acquires the
        // others if that is this thread.
        if complete || request.pending().fetch_sub(1, AcqRel) == 1 {
            // SAFETY: all members have been reached.
            let request = unsafe { OwnRequest::new(request) };
            if complete { request.hand_over() } else { request.complete() }
        }
    }

    /// Whether the member's wait is gone.
    ///
    /// # Safety
    /// The node is a member that has not been reached.
    unsafe fn is_dropped(node: NonNull<Node>) -> bool {
        // SAFETY: promised by the caller.
        unsafe { Member::of_node(node) }.request().ticket().is_some_and(Ticket::is_over)
    }

    /// The wait is gone: this member needs no color any more.
    ///
    /// # Safety
    /// The node is a member that has not been reached, and the caller gives it up; no lock is held.
    unsafe fn remove(node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        let member = unsafe { Member::of_node(node) };
        let request = member.get().request();
        // Relaxed: as in `grant`; 0 means that this was the only member left. AcqRel: as there.
        if request.pending().load(Relaxed) == 0 || request.pending().fetch_sub(1, AcqRel) == 1 {
            // SAFETY: all members have been reached.
            unsafe { OwnRequest::new(request) }.finish();
        }
    }
}

/// A request without members in fifos: it belongs to this owner alone, with all colors that are
/// held for it.
///
/// Those are all its colors, unless its wait is being dropped. A value that goes out of scope is
/// leaked; a method that gives it up consumes it.
#[must_use]
pub(crate) struct OwnRequest(NonNull<Request>);

/// The right to take holds from a request without atomics: its owner has it, unless its wait can be
/// dropped.
#[derive(Clone, Copy)]
struct Sole<'r>(PhantomData<&'r OwnRequest>);

impl Deref for OwnRequest {
    type Target = Request;

    #[inline]
    fn deref(&self) -> &Request {
        self.alive().get()
    }
}

impl Request {
    #[inline]
    fn new(shared: *const Shared, work: &'static Work, origin: Origin) -> Request {
        Request {
            pending: AtomicU32::new(0),
            members: Cell::new(ptr::slice_from_raw_parts(ptr::null(), 0)),
            shared,
            ticket: Cell::new(ptr::null()),
            turn: Cell::new(None),
            work,
            origin,
            pinned: false,
            record: Cell::new(ptr::null_mut()),
            #[cfg(any(dapple_loom, dapple_shuttle))]
            buried: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Replaces freeing in a model, as [`ColorCell::bury`] does for a color.
    ///
    /// # Safety
    /// The caller may free the request.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    unsafe fn bury(mut this: NonNull<Request>) {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_mut() };
        request.check_alive();
        // Relaxed: in models one thread runs at a time.
        request.buried.store(true, std::sync::atomic::Ordering::Relaxed);
        #[cfg(dapple_loom)]
        request.pending.with_mut(|_| ());
    }

    #[inline(always)]
    fn check_alive(&self) {
        #[cfg(any(dapple_loom, dapple_shuttle))]
        // Relaxed: as there.
        assert!(!self.buried.load(std::sync::atomic::Ordering::Relaxed), "a request was used after it was freed");
    }

    #[inline(always)]
    fn pending(&self) -> &AtomicU32 {
        self.check_alive();
        &self.pending
    }

    #[inline]
    fn members(&self) -> &[Member] {
        self.check_alive();
        let members = self.members.get();
        // SAFETY: set to members that live as long as the request, or left null.
        if members.is_null() { &[] } else { unsafe { &*members } }
    }

    /// The colors of the request.
    pub(crate) fn colors(&self) -> impl Iterator<Item = ColorRef<'_>> + Clone {
        self.members().iter().map(Member::color)
    }

    fn shared(&self) -> &Shared {
        self.check_alive();
        // SAFETY: the colors' runtime. They keep it alive while they are held or have nodes, and a
        // submitter has handles.
        unsafe { &*self.shared }
    }

    /// Whether the request holds `color`: for writing, or if it `reads`, at least for reading.
    pub(crate) fn holds(&self, color: NonNull<ColorCell>, reads: bool) -> bool {
        self.members().iter().any(|member| member.color == color && (reads || !member.reads()))
    }

    /// Gives each member its request, by `this`, the pointer that will free it. The caller moves
    /// neither until the request is over.
    #[inline]
    fn adopt_members(&self, this: NonNull<Request>, members: *const [Member]) {
        self.members.set(members);
        self.members().iter().for_each(|member| member.request.set(this.as_ptr()));
    }

    /// The member with a pinned color, on the worker that must run this: for a wait, the task's color if
    /// it is among those held; for a closure, any.
    #[inline]
    fn pin(&self) -> Option<&Member> {
        if self.pinned { self.find_pin() } else { None }
    }

    #[cold]
    fn find_pin(&self) -> Option<&Member> {
        let own = self.ticket().map(Ticket::task_color);
        let runs = |member: &&Member| own.is_none_or(|own| own == Some(member.color));
        // Reads only the task's color, which is visited last: if the wait was dropped, the others
        // may have been freed.
        self.members().iter().find(|member| runs(member) && !member.reads() && member.color().is_pinned())
    }

    /// Whether no color is pinned to a worker other than this thread's.
    #[inline]
    fn may_run_here(&self) -> bool {
        let Some(pin) = self.pin() else { return true };
        // Relaxed: the home of a pinned color never changes.
        context::with_worker(|worker| worker.index) == Some(usize::from(pin.color().home.load(Relaxed)))
    }

    /// The member with the color of the waiting task: if there is one, the task can be polled only
    /// in a turn of that color.
    fn member_of(&self, ticket: &Ticket) -> Option<&Member> {
        let own = ticket.task_color()?;
        self.members().iter().find(|member| member.color == own && !member.reads())
    }

    /// Releases the colors that are held for the request so far, because its wait was dropped.
    /// Colors that first serve other requests reach their member later, and are released then.
    pub(crate) fn give_back(&self) {
        let held = self.members().iter().filter(|member| member.is_held());
        worker::away(|| held.filter_map(Member::take_hold).for_each(hold::release));
    }

    /// The colors that the request still waits for and that have enough dropped waits for a sweep.
    ///
    /// # Safety
    /// The colors are alive for `'a`: the dropped future has handles to them.
    pub(crate) unsafe fn crowded<'a>(&self) -> Vec<ColorRef<'a>> {
        let waits = self.members().iter().filter(|member| !member.is_held());
        // SAFETY: promised by the caller.
        waits.map(|member| unsafe { ColorRef::new(member.color) }).filter(|color| sweep::is_due(*color)).collect()
    }

    /// Traces the closure that is about to be posted.
    fn trace(&self) {
        // A request without colors has no member, and nothing accepts it.
        if let Some(member) = self.members().first()
            && let Some(record) = trace::accept(&member.color(), self.origin, self.members().len() > 1)
        {
            self.record.set(record.as_ptr());
        }
    }

    fn take_record(&self) -> Option<Record> {
        let record = NonNull::new(self.record.replace(ptr::null_mut()))?;
        // SAFETY: `trace` put it there, and no other thread has it any more.
        Some(unsafe { trace::take(record) })
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.check_alive();
        // SAFETY: the request has a count on it until it is freed.
        unsafe { self.ticket.get().as_ref() }
    }
}

impl OwnRequest {
    /// # Safety
    /// No fifo has a member of the request, and the caller gives up its part of it: the held
    /// colors, and the right to free it.
    #[inline]
    pub(crate) unsafe fn new(request: Alive<'_, Request>) -> OwnRequest {
        OwnRequest(request.ptr())
    }

    #[inline]
    pub(crate) fn alive(&self) -> Alive<'_, Request> {
        // SAFETY: only the owner frees the request.
        unsafe { Alive::new(self.0) }
    }

    /// While a wait is being dropped, each side may release a color that the other one sees as
    /// held, and a released color may be freed. So each side takes the hold before it uses the
    /// color. In all other cases the owner alone releases colors.
    #[inline]
    fn sole(&self) -> Option<Sole<'_>> {
        let shared = self.ticket().is_some_and(Ticket::may_be_dropping);
        (!shared).then_some(Sole(PhantomData))
    }

    /// All colors are held, none by a turn, and no lock is held.
    #[cold]
    fn complete(self) {
        // Relaxed: see `Member::grant`.
        self.pending().store(0, Relaxed);
        let runner = match self.ticket() {
            Some(ticket) => match self.member_of(ticket) {
                Some(own) => own,
                None => return self.hand_over(),
            },
            None => match self.pin().or_else(|| self.members().iter().find(|member| !member.reads())) {
                Some(runner) => runner,
                None => return self.run_in_own_color(),
            },
        };
        let at = self.members().iter().position(|member| ptr::eq(member, runner));
        self.run_in(at.unwrap_or_default());
    }

    /// Queues a color that is held for the request, so that its turn runs the request before
    /// anything else.
    fn run_in(self, at: usize) {
        let runner = &self.members()[at];
        // Keeps the runtime alive after the colors are released.
        let shared = runner.color().counted_runtime();
        let mut home = runner.color().lock_home();
        if home.is_closed() {
            drop(home);
            return self.stop();
        }
        let hold = match self.sole() {
            Some(sole) => runner.take_hold_alone(sole),
            None => runner.take_hold(),
        };
        let Some(hold) = hold else {
            drop(home);
            // The wait was dropped, and the color is no longer held.
            return self.finish();
        };
        let mut fifo = home.fifo().expect("a held color does not run");
        // SAFETY: the node was reached, or was never queued; the caller gives the request up.
        fifo.push_front(unsafe { runner.queued() });
        fifo.drain_inbox();
        home.queue_held(hold);
        let index = home.index();
        drop(home);
        shared.kick(index);
    }

    /// Runs a request that only reads, for which no color has a turn, in a color of its own.
    fn run_in_own_color(self) {
        struct Reads(Option<OwnRequest>);
        // SAFETY: closures are `Send` (bounds of `post`), and one thread at a time touches a
        // request.
        unsafe impl Send for Reads {}
        impl Drop for Reads {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(OwnRequest::stop);
            }
        }
        let origin = self.origin;
        // SAFETY: the pointer is from an `Arc`, which the held colors or the submitter keep alive.
        let shared = unsafe {
            Arc::increment_strong_count(self.shared);
            Arc::from_raw(self.shared)
        };
        let home = context::with_worker(|worker| worker.index).unwrap_or(0) % shared.slots.len();
        let color = Color::from_counted(Color::allocate(&shared, Kind::Fresh, shared.fresh_id(), home));
        let mut reads = Reads(Some(self));
        let run = move || {
            let reads = &mut reads;
            reads.0.take().into_iter().for_each(|request| request.run_closure(None));
        };
        // The request has been accepted already.
        trace::untraced(|| color.accept_closure(origin, Priority::NORMAL, run));
    }

    /// Runs the closure, releases all colors but that of the turn, and frees the request.
    ///
    /// All colors are held for the request, `turn` by the turn of the caller.
    #[inline]
    fn run_closure(self, turn: Option<(ColorRef<'_>, &Worker)>) {
        /// The closure has ended, perhaps by unwinding, and the colors are still held.
        struct Finish(Option<OwnRequest>);
        impl Drop for Finish {
            #[inline]
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(OwnRequest::finish);
            }
        }
        let finish = Finish(Some(self));
        let Some(request) = &finish.0 else { unreachable!("it was just put there") };
        // Read before the closure runs, so that the processor loads the color meanwhile.
        let other = turn.and_then(|(turn, worker)| request.other_here(turn, worker));
        // SAFETY: the request was posted with a closure, which runs once.
        let run = || context::in_request_frame(request.0, |_| unsafe { (request.work.run)(request.0) });
        match request.take_record() {
            None => run(),
            Some(record) => _ = context::with_worker(|worker| worker.run_traced(turn.map(|turn| turn.0), &record, run)),
        }
        if let (Some(other), Some((turn, worker))) = (other, turn)
            && turn.len() == 0
            && let Some(hold) = request.sole().and_then(|sole| other.take_hold_alone(sole))
        {
            // The turn has no more to run.
            worker.lets_go_after_turn(hold);
            // SAFETY: the closure has ended, the request holds nothing any more, and a request with
            // a closure has no ticket.
            unsafe { (request.work.free)(request.0) };
            mem::forget(finish);
        }
    }

    /// The only color held in addition to that of this turn, if it is at home on this worker: the
    /// end of the turn can release it under the lock that it takes anyway.
    #[inline]
    fn other_here(&self, turn: ColorRef<'_>, worker: &Worker) -> Option<&Member> {
        let [one, two] = self.members() else { return None };
        let other = if one.color == turn.ptr() { two } else { one };
        let here = worker.may_be_home_of(&other.color()) && !other.reads() && !switches::shared_queue();
        here.then_some(other)
    }

    /// Polls the waiting task inside the turn of a color that reached its node, or hands the
    /// colors over to it.
    fn poll_waiter(self, turn: NonNull<ColorCell>, node: OwnedNode) {
        let Some(ticket) = self.counted_ticket() else { return };
        // From here on, a dropped wait leaves the colors to this turn.
        if !ticket.begin_turn() {
            return self.finish();
        }
        self.turn.set(Some(turn));
        let polled = context::in_request_frame(self.0, |_| match self.member_of(&ticket) {
            Some(_) => {
                // SAFETY: the frame holds the task's color with the others.
                unsafe { ticket.poll_own() };
                true
            }
            None => ticket.poll_in_begun_turn(),
        });
        if !polled && ticket.put_off() {
            context::with_worker(|worker| worker.hand_off_after_turn(node));
            return;
        }
        // Colors that the waiter has not released are still held.
        self.finish();
    }

    /// Releases all colors but that of the waiter's own task, after the waiter has used its chance
    /// in this turn. Even the turn's color is released, so that no other work waits for it during
    /// the rest of the task's poll.
    ///
    /// # Safety
    /// The waiter's future calls this while [`OwnRequest::poll_waiter`] polls it.
    pub(crate) unsafe fn release_in_turn(request: Alive<'_, Request>) {
        // SAFETY: the outer poll has the request, and releases nothing meanwhile.
        let this = &*ManuallyDrop::new(unsafe { OwnRequest::new(request) });
        let own = this.ticket().and_then(Ticket::task_color).filter(|color| this.holds(*color, false));
        let turn = this.turn.get();
        let ends = |frame: &Frame| {
            if this.members().iter().any(|member| context::relies_on(frame, member.color)) {
                // They are released when the poll ends.
                return false;
            }
            this.release_held(own);
            frame.end_request(own.filter(|own| Some(*own) != turn));
            true
        };
        if context::with_frame_of(this.0, ends) != Some(true) {
            return;
        }
        if let Some(turn) = turn.filter(|turn| Some(*turn) != own) {
            // SAFETY: it runs here.
            context::with_worker(|worker| unsafe { worker.release_turn(turn) });
        }
    }

    /// Hands all colors to the waiter. No lock is held.
    fn hand_over(self) {
        match self.counted_ticket() {
            Some(ticket) => ticket.hand_over(Grant::Many(self)),
            // A complete closure, but the runner's worker has stopped before the runner's turn
            // came.
            None => self.stop(),
        }
    }

    /// The request can no longer run: its closure is dropped while all colors are held, or its
    /// waiter has to ask again.
    fn stop(self) {
        match self.ticket() {
            Some(ticket) => ticket.miss(),
            None => {
                let shared = self.shared();
                // Relaxed: for statistics.
                shared.callbacks_dropped.fetch_add(1, Relaxed);
                self.take_record().into_iter().for_each(Record::tell_dropped);
                // SAFETY: the closure has not run, and is dropped once.
                let drop = || context::in_request_frame(self.0, |_| unsafe { (self.work.drop)(self.0) });
                if let Err(payload) = catch_unwind(AssertUnwindSafe(drop)) {
                    panics::report(shared, None, payload);
                }
            }
        }
        self.finish();
    }

    /// Releases all colors that are held for the request, and frees the request, unless a thread
    /// that drops the wait does so.
    pub(crate) fn finish(self) {
        self.release_held(None);
        if self.ticket().is_none_or(Ticket::is_last) {
            // SAFETY: it belongs to this thread alone.
            unsafe { Request::free(self.0) };
        }
    }

    /// Releases all colors that are held for the request, except `kept`.
    fn release_held(&self, kept: Option<NonNull<ColorCell>>) {
        let goes = |member: &&Member| member.is_held() && Some(member.color) != kept;
        if !self.members().iter().any(|member| goes(&member)) {
            return;
        }
        let sole = self.sole();
        let left = context::with_worker_of(self.shared, |worker| {
            let Some((worker, sole)) = worker.zip(sole) else { return true };
            let mut afterwards = Afterwards::new();
            let mut left = false;
            let mut queue = worker.slot().lock();
            for member in self.members().iter().filter(goes) {
                left |= !member.release_at_home(sole, &mut queue, &mut afterwards);
            }
            drop(queue);
            afterwards.settle(&worker.shared);
            left
        });
        if left {
            let elsewhere = self.members().iter().filter(goes);
            worker::away(|| match sole {
                Some(sole) => elsewhere.filter_map(|member| member.take_hold_alone(sole)).for_each(hold::release),
                None => elsewhere.filter_map(Member::take_hold).for_each(hold::release),
            });
        }
    }

    fn counted_ticket(&self) -> Option<Arc<Ticket>> {
        self.ticket().map(|ticket| {
            // SAFETY: it came from an `Arc`, and the request has a count on it.
            unsafe {
                Arc::increment_strong_count(ticket);
                Arc::from_raw(ticket)
            }
        })
    }
}

impl Request {
    /// # Safety
    /// No thread uses the request any more.
    pub(crate) unsafe fn free(this: NonNull<Request>) {
        // SAFETY: promised by the caller; `wait` took the count.
        unsafe {
            let ticket = this.as_ref().ticket.get();
            (this.as_ref().work.free)(this);
            if !ticket.is_null() {
                drop(Arc::from_raw(ticket));
            }
        }
    }
}
