//! Requests: callbacks and waits that hold several colors at once (C4), or that read and are posted (C5).
//!
//! A request has a node, its *member*, for each of its colors. All colors accept it in one step: the locks of all their
//! homes are taken, in the order of the workers; each color that is free is held for the request at once, each that is
//! not gets the member in its fifo (or, while another worker runs it, in its inbox). Two requests with colors in common
//! have the locks of the homes of those in common, so all colors that they share accept them in the same order. The
//! order of acceptance is thus one without cycles, and nobody waits for somebody who was accepted later: no deadlock,
//! whatever the order in which colors are named, and no color has to be given back.
//!
//! # States
//!
//! | state | `pending` | who leaves it, to what |
//! |---|---|---|
//! | new | – | `submit`: waiting, or complete where all colors are free and none is to be run in |
//! | waiting | members that wait in fifos | the turn that reaches a member while others wait: the color is `Held` or `Reading`, one less (`grant`); the turn that reaches the last one, for writing: running |
//! | complete | 0 | `complete`: the runner (a color held for writing) is queued again, the member in front: running; a request that only reads gets a color of its own to run in: running; a waiter on several colors: handed over (`ticket.rs`) |
//! | running | 0 | the end of the closure: all colors but that of the turn are released, the memory is freed |
//! | stopped | 0 | its runner's worker has stopped: the closure is dropped while all colors are held, then they are released |
//!
//! Where all colors are free, as is usual, the one that is to run it (the *runner*) is queued and the others are held, so
//! that a request costs one lock, one node in one fifo and one turn, and the release of the others.
//!
//! `pending` is written under the locks before any member can be reached. After that, `grant` counts down once a color is
//! held (AcqRel, so that who sees 1 or 0 also sees the other colors held), and only the turn that finds itself last
//! leaves the countdown out.

mod place;
mod posted;

pub(crate) use posted::{holding_all, submit_closure, try_hold_all, wait_for_all};

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::color::cell::{ColorCell, Kind, State};
use crate::color::holder::Holder;
use crate::color::node::{Node, Origin, VTable, Waits};
use crate::color::{Color, Priority};
use crate::hold;
use crate::hold::ticket::Ticket;
use crate::observe::trace::{self, Record};
use crate::post::afterwards::Afterwards;
use crate::post::sweep;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use crate::sync::lock::Guard;
use crate::worker::run_queue::RunQueue;
use crate::worker::{self, Worker};

/// What several colors are to be held for.
pub(crate) struct Request {
    /// Members whose color is not held yet; see the table.
    pending: AtomicU32,
    /// One per color, each color once; in the same allocation, or owned by it.
    members: Cell<*const [Member]>,
    shared: *const Shared,
    /// Who waits, if it is not a closure that was posted.
    ticket: Cell<*const Ticket>,
    /// The color in whose turn the waiter is polled.
    turn: Cell<Option<NonNull<ColorCell>>>,
    work: &'static Work,
    origin: Origin,
    /// What traces the closure that was posted, or null.
    record: Cell<*mut Record>,
    /// Models keep the memory of a request that was freed, to see who touches it.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    buried: std::sync::atomic::AtomicBool,
}

/// What to do with the closure of a request, and with its memory.
struct Work {
    /// Calls the closure.
    run: unsafe fn(NonNull<Request>),
    /// Drops the closure.
    drop: unsafe fn(NonNull<Request>),
    /// Frees the request, whose closure is gone.
    free: unsafe fn(NonNull<Request>),
}

/// One color of a request. Public in name only: [`crate::Set`] is made of them, and nobody outside can reach this module.
#[repr(C)]
pub struct Member {
    /// At offset zero, so that a node is a member.
    node: Node,
    request: Cell<*const Request>,
    color: NonNull<ColorCell>,
    /// Whether the color is `Held` (or `Reading`) for the member, and is to be let go of by the thread that ends this.
    held: AtomicBool,
}

impl Member {
    const VTABLE: &'static VTable = &VTable {
        run: Member::run,
        // Never called: a member is granted its color even then, so that the closure is dropped while all are held.
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
    pub(crate) fn new(color: NonNull<ColorCell>, reads: bool, priority: Priority) -> Member {
        // Set again when it is known who asks.
        let node = Node::new(Member::VTABLE, priority, Location::caller());
        if reads {
            node.set_reads();
        }
        Member { node, request: Cell::new(ptr::null()), color, held: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn color(&self) -> NonNull<ColorCell> {
        self.color
    }

    #[inline]
    fn cell(&self) -> &ColorCell {
        // SAFETY: alive until the member has been submitted (the caller has handles), and then as long as the color is
        // held for the request or has the member in its fifo.
        let cell = unsafe { self.color.as_ref() };
        cell.check_alive();
        cell
    }

    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.node.reads()
    }

    /// Before it is submitted.
    pub(crate) fn set_reads(&mut self, reads: bool) {
        *self = Member::new(self.color, reads, Priority::new(self.node.priority()));
    }

    /// Before it is submitted.
    #[inline]
    fn set_origin(&mut self, origin: Origin) {
        self.node.set_origin(Ok(origin));
    }

    /// Whether the color is held for the member.
    #[inline]
    fn is_held(&self) -> bool {
        // Relaxed: the thread that uses the answer has come to the request after those that held its colors, or takes
        // the hold by an exchange.
        self.held.load(Relaxed)
    }

    /// The color is held for the member (or no longer, as a turn has it now). One thread at a time has the request.
    #[inline]
    fn set_held(&self, held: bool) {
        // Release pairs with `take_hold` of a wait that is being dropped. Otherwise counting down `pending`, or the lock of the
        // color's home, passes it on.
        self.held.store(held, Release);
    }

    /// Ends the hold; the caller lets go of the color. False: another thread has done so. `shared`: the wait may be
    /// dropped at this moment, and both sides let go of what is held.
    #[inline]
    fn take_hold(&self, shared: bool) -> bool {
        if shared {
            // AcqRel pairs with `set_held`: that the color is held, before it is let go of.
            return self.held.swap(false, AcqRel);
        }
        let held = self.is_held();
        self.set_held(false);
        held
    }

    /// Lets go of a color whose home is this worker, unless it has stopped. False: it is at home elsewhere.
    ///
    /// # Safety
    /// The color is held for the member, whose request is this thread's alone; `queue` is the lock of the worker of that index.
    unsafe fn release_at_home(
        &self,
        index: usize,
        queue: &mut Guard<'_, RunQueue>,
        afterwards: &mut Afterwards,
    ) -> bool {
        let cell = self.cell();
        // Relaxed: the lock of the worker that it must be at home on is held.
        if usize::from(cell.home.load(Relaxed)) != index || queue.closed {
            return false;
        }
        self.set_held(false);
        // SAFETY: promised by the caller.
        unsafe {
            if self.reads() && !hold::leave_readers(cell) {
                return true;
            }
            cell.drain_inbox();
            if cell.len() > 0 {
                queue.push(self.color);
                return true;
            }
            cell.set_state(State::Idle);
            if hold::is_dead(self.color) {
                afterwards.bury(self.color);
            }
        }
        true
    }

    /// Lets go of the color, wherever it is at home.
    ///
    /// # Safety
    /// It is held for the member.
    unsafe fn release(&self) {
        // SAFETY: promised by the caller.
        unsafe { if self.reads() { hold::release_read(self.color) } else { hold::release(self.color) } }
    }

    fn request(&self) -> NonNull<Request> {
        NonNull::new(self.request.get().cast_mut()).expect("a member that is queued belongs to a request")
    }

    /// The color's turn has reached the member.
    ///
    /// # Safety
    /// The node is a member's, and the caller's to give; called by a turn of its color (or, for a request that only
    /// reads, of the color that it runs in).
    unsafe fn run(node: NonNull<Node>, _: &Worker) {
        // SAFETY: promised by the caller.
        let (request, reads) = unsafe { (node.cast::<Member>().as_ref().request(), node.as_ref().reads()) };
        // Acquire pairs with `grant`: the other colors are held.
        // SAFETY: the request is alive while it has a member that was not reached.
        let (pending, may_run) =
            unsafe { (request.as_ref().pending().load(Acquire), || request.as_ref().may_run_here()) };
        if pending > 1 || (pending == 1 && (reads || !may_run())) {
            // The turn ends here, and its end calls `grant`.
            context::with_worker(|worker| worker.hand_off_after_turn(node));
            return;
        }
        // SAFETY: all other colors are held, and this turn has the one of the node.
        unsafe {
            // Relaxed: see `grant`.
            request.as_ref().pending().store(0, Relaxed);
            Request::run_in_turn(request, node);
        }
    }

    /// The color is held for the request.
    ///
    /// # Safety
    /// It is, the node is a member's and the caller's to give, and he holds no lock.
    unsafe fn grant(node: NonNull<Node>) {
        // SAFETY: promised by the caller; the request is alive while one of its members has not been counted.
        unsafe {
            let member = node.cast::<Member>().as_ref();
            let request = member.request();
            member.set_held(true);
            if request.as_ref().ticket().is_some_and(Ticket::is_dropped) && member.take_hold(true) {
                // The thread that dropped the wait may not have seen that this color is held.
                member.release();
            }
            // Relaxed: 0 was written by the turn that has just ended on this very worker, or under the lock of the
            // runner's home, from which the node was taken.
            if request.as_ref().pending().load(Relaxed) == 0 {
                return Request::hand_over(request);
            }
            // AcqRel: releases this color to whoever completes the request, acquires the others if that is us.
            if request.as_ref().pending().fetch_sub(1, AcqRel) == 1 {
                Request::complete(request);
            }
        }
    }

    /// Whether the wait is gone that the member belongs to.
    ///
    /// # Safety
    /// The node is a member's that has not been reached.
    unsafe fn is_dropped(node: NonNull<Node>) -> bool {
        // SAFETY: promised by the caller; the request is alive while it has such a member.
        unsafe { node.cast::<Member>().as_ref().request().as_ref() }.ticket().is_some_and(Ticket::is_over)
    }

    /// The wait is gone: nothing has to be held for this member any more.
    ///
    /// # Safety
    /// The node is a member's that has not been reached, and the caller's to give; no lock is held.
    unsafe fn remove(node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe {
            let request = node.cast::<Member>().as_ref().request();
            // Relaxed: as in `grant`; 0 means that only this member was to be reached. AcqRel: as there.
            let pending = request.as_ref().pending();
            if pending.load(Relaxed) == 0 || pending.fetch_sub(1, AcqRel) == 1 {
                Request::finish(request);
            }
        }
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
            record: Cell::new(ptr::null_mut()),
            #[cfg(any(dapple_loom, dapple_shuttle))]
            buried: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Stands for freeing in a model, as [`ColorCell::bury`] does for a color.
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
        // SAFETY: set to members that live as long as the request, or left empty.
        if members.is_null() { &[] } else { unsafe { &*members } }
    }

    /// What it is about.
    pub(crate) fn colors(&self) -> impl Iterator<Item = NonNull<ColorCell>> + Clone {
        self.members().iter().map(|member| member.color)
    }

    fn shared(&self) -> &Shared {
        self.check_alive();
        // SAFETY: the colors' runtime: they keep it alive while they are held or have something queued, and whoever
        // submits has a handle.
        unsafe { &*self.shared }
    }

    /// Whether `color` is one of those that are held, for oneself or, if that is enough, for reading.
    pub(crate) fn holds(&self, color: NonNull<ColorCell>, reads: bool) -> bool {
        self.members().iter().any(|member| member.color == color && (reads || !member.reads()))
    }

    /// Gives each member its request, by `this`, the pointer through which that is freed. The caller keeps both where they
    /// are until the request is over.
    #[inline]
    fn adopt_members(&self, this: NonNull<Request>, members: *const [Member]) {
        self.members.set(members);
        self.members().iter().for_each(|member| member.request.set(this.as_ptr()));
    }

    /// All colors are held, by nobody's turn.
    ///
    /// # Safety
    /// They are, for this request, which is the caller's; he holds no lock.
    #[cold]
    unsafe fn complete(this: NonNull<Request>) {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        // Relaxed: see `Member::grant`.
        request.pending().store(0, Relaxed);
        // SAFETY: promised by the caller.
        unsafe {
            if let Some(ticket) = request.ticket() {
                return match request.member_of(ticket) {
                    Some(own) => Request::run_in(this, own),
                    None => Request::hand_over(this),
                };
            }
            match request.pin().or_else(|| request.members().iter().find(|member| !member.reads())) {
                Some(runner) => Request::run_in(this, runner),
                None => Request::run_in_own_color(this),
            }
        }
    }

    /// The member whose worker must run this, because its color is pinned: that of the task which waits, if it is held
    /// with the others, or for a closure any.
    fn pin(&self) -> Option<&Member> {
        let own = self.ticket().map(Ticket::task_color);
        let runs = |member: &&Member| own.is_none_or(|own| own == Some(member.color));
        // The color of the task is looked at last, and no other: of a wait that was dropped, the others may be gone.
        self.members().iter().find(|member| runs(member) && !member.reads() && member.cell().is_pinned())
    }

    /// Whether no color is pinned to another worker than this.
    fn may_run_here(&self) -> bool {
        let Some(pin) = self.pin() else { return true };
        // Relaxed: the home of a pinned color never changes.
        context::with_worker(|worker| worker.index) == Some(usize::from(pin.cell().home.load(Relaxed)))
    }

    /// The member whose color is that of the task which waits: then that can be polled only in a turn of it.
    fn member_of(&self, ticket: &Ticket) -> Option<&Member> {
        let own = ticket.task_color()?;
        self.members().iter().find(|member| member.color == own && !member.reads())
    }

    /// Queues a color that is held for the request, so that its turn runs the request before anything else.
    ///
    /// # Safety
    /// As [`Request::complete`].
    unsafe fn run_in(this: NonNull<Request>, runner: &Member) {
        // SAFETY: promised by the caller.
        let shared = unsafe { this.as_ref() }.shared;
        // SAFETY: the colors that are held keep the runtime alive; a clone for the time after they are let go.
        let shared = unsafe {
            Arc::increment_strong_count(shared);
            Arc::from_raw(shared)
        };
        let (home, mut queue) = shared.lock_home(runner.cell());
        if queue.closed {
            drop(queue);
            // SAFETY: promised by the caller.
            return unsafe { Request::stop(this) };
        }
        // SAFETY: as above.
        if !runner.take_hold(unsafe { this.as_ref() }.ticket().is_some()) {
            drop(queue);
            // The wait was dropped, and the color is no longer held.
            // SAFETY: promised by the caller.
            return unsafe { Request::finish(this) };
        }
        // SAFETY: we hold the home lock, and the color is `Held` by us.
        unsafe {
            runner.cell().push_front(NonNull::from(runner).cast());
            runner.cell().drain_inbox();
            queue.push(runner.color);
        }
        drop(queue);
        shared.kick(home);
    }

    /// A request that only reads, so that no color is its own to run in.
    ///
    /// # Safety
    /// As [`Request::complete`].
    unsafe fn run_in_own_color(this: NonNull<Request>) {
        struct Reads(NonNull<Request>);
        // SAFETY: closures are `Send` (bounds of `post`), and a request is touched by one thread at a time.
        unsafe impl Send for Reads {}
        impl Drop for Reads {
            fn drop(&mut self) {
                // SAFETY: all its colors are still held.
                unsafe { Request::stop(self.0) };
            }
        }
        // SAFETY: promised by the caller; the colors keep the runtime alive.
        let (color, origin) = unsafe {
            let shared = this.as_ref().shared;
            Arc::increment_strong_count(shared);
            let shared = Arc::from_raw(shared);
            let home = context::with_worker(|worker| worker.index).unwrap_or(0) % shared.slots.len();
            let color = Color::from_counted(Color::allocate(&shared, Kind::Fresh, shared.fresh_id(), home));
            (color, this.as_ref().origin)
        };
        let reads = Reads(this);
        let run = move || {
            let reads = ManuallyDrop::new(reads);
            // SAFETY: all colors are held.
            unsafe { Request::run_closure(reads.0, None) };
        };
        // The request has been accepted already.
        trace::untraced(|| color.accept_closure(origin, Priority::NORMAL, run));
    }

    /// All colors are held, one of them by this very turn, which has reached its member.
    ///
    /// # Safety
    /// They are; the node is a member's.
    unsafe fn run_in_turn(this: NonNull<Request>, node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe {
            let turn = node.cast::<Member>().as_ref().color;
            match this.as_ref().ticket() {
                None => Request::run_closure(this, Some(turn)),
                Some(_) => Request::poll_waiter(this, turn, node),
            }
        }
    }

    /// Runs the closure, releases the colors but that of the turn, and frees the request.
    ///
    /// # Safety
    /// All colors are held for the request, `turn` by the turn that the caller is in.
    unsafe fn run_closure(this: NonNull<Request>, turn: Option<NonNull<ColorCell>>) {
        struct Finish(NonNull<Request>);
        impl Drop for Finish {
            fn drop(&mut self) {
                // SAFETY: the closure is gone, also if it unwound, and the colors are still held.
                unsafe { Request::finish(self.0) };
            }
        }
        let _finish = Finish(this);
        // SAFETY: promised by the caller.
        let run = || context::in_request_frame(this, |_| unsafe { (this.as_ref().work.run)(this) });
        // SAFETY: as above.
        match unsafe { this.as_ref().take_record() } {
            None => run(),
            // SAFETY: a turn keeps its color alive.
            Some(record) => context::with_worker(|worker| unsafe {
                worker.run_traced(turn, &record, run);
            })
            .unwrap_or_default(),
        }
    }

    /// Polls the waiting task inside the turn, or has the colors handed over to it.
    ///
    /// # Safety
    /// As [`Request::run_in_turn`]; the request has a ticket.
    unsafe fn poll_waiter(this: NonNull<Request>, turn: NonNull<ColorCell>, node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        let Some(ticket) = request.ticket_counted() else { return };
        // From here on, dropping the wait leaves the colors to this turn.
        if !ticket.begin_turn() {
            // SAFETY: the wait was dropped.
            return unsafe { Request::finish(this) };
        }
        request.turn.set(Some(turn));
        let polled = context::in_request_frame(this, |_| match request.member_of(&ticket) {
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
        // SAFETY: what the waiter has not let go of is still held for the request.
        unsafe { Request::finish(this) };
    }

    /// The waiter has used what it was polled in a turn for: lets go of all colors but that of its own task, also of the
    /// turn, so that what else the task does in this poll does not keep others from them.
    ///
    /// # Safety
    /// Called by the waiter's future while it is polled by [`Request::poll_waiter`].
    pub(crate) unsafe fn release_in_turn(this: NonNull<Request>) {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        let own = request.ticket().and_then(Ticket::task_color).filter(|color| request.holds(*color, false));
        let turn = request.turn.get();
        let Some(frame) = context::frame_of_request(this) else { return };
        if request.members().iter().any(|member| context::relies_on(frame, member.color)) {
            // They are let go of when the poll ends.
            return;
        }
        // SAFETY: they are held for the request, and only this turn lets go of them.
        unsafe { request.release_held(own) };
        frame.end_request(own.filter(|own| Some(*own) != turn));
        if let Some(turn) = turn.filter(|turn| Some(*turn) != own) {
            // SAFETY: it runs here.
            context::with_worker(|worker| unsafe { worker.release_turn(turn) });
        }
    }

    /// Hands all colors to the waiter.
    ///
    /// # Safety
    /// They are held for the request, which is the caller's to give; no lock is held.
    unsafe fn hand_over(this: NonNull<Request>) {
        // SAFETY: promised by the caller.
        unsafe {
            match this.as_ref().ticket_counted() {
                Some(ticket) => ticket.hand_over(),
                // A closure that was complete, and whose runner's worker has stopped before its turn came.
                None => Request::stop(this),
            }
        }
    }

    /// It can no longer run: its closure is dropped while all colors are held, or its waiter told to ask anew.
    ///
    /// # Safety
    /// As [`Request::hand_over`].
    unsafe fn stop(this: NonNull<Request>) {
        // SAFETY: promised by the caller; the colors that are held keep the runtime alive.
        unsafe {
            let request = this.as_ref();
            match request.ticket() {
                Some(ticket) => ticket.miss(),
                None => {
                    // Relaxed: a number to show.
                    request.shared().callbacks_dropped.fetch_add(1, Relaxed);
                    request.take_record().into_iter().for_each(|record| record.tell_dropped());
                    let drop = AssertUnwindSafe(|| context::in_request_frame(this, |_| (request.work.drop)(this)));
                    if let Err(payload) = catch_unwind(drop) {
                        crate::runtime::panics::report(request.shared(), None, payload);
                    }
                }
            }
            Request::finish(this);
        }
    }

    /// Lets go of all colors that are held for the request, and frees it.
    ///
    /// # Safety
    /// No fifo has a member of the request, which the caller forgets.
    pub(crate) unsafe fn finish(this: NonNull<Request>) {
        // SAFETY: promised by the caller; a thread that is dropping the wait frees the request in our place.
        unsafe {
            this.as_ref().release_held(None);
            if this.as_ref().ticket().is_none_or(Ticket::is_last) {
                Request::free(this);
            }
        }
    }

    /// The wait was dropped: lets go of the colors that are held for the request by now. Those that other requests wait
    /// for before this one reach their member later, and are let go of then.
    ///
    /// # Safety
    /// The caller drops the wait, and its ticket says so ([`Ticket::is_dropped`]).
    pub(crate) unsafe fn give_back(this: NonNull<Request>) {
        // SAFETY: promised by the caller.
        unsafe { this.as_ref().release_held(None) };
    }

    /// The colors that the request still waits for and that have as many dropped waits now that they should be swept.
    ///
    /// # Safety
    /// As [`Request::give_back`]; the future that is dropped has handles to the colors.
    pub(crate) unsafe fn crowded(&self) -> Vec<NonNull<ColorCell>> {
        let waits = self.members().iter().filter(|member| !member.is_held());
        // SAFETY: promised by the caller.
        waits.map(Member::color).filter(|color| unsafe { sweep::is_due(*color) }).collect()
    }

    /// Lets go of all colors that are held for the request, but this one.
    ///
    /// # Safety
    /// The caller has the request, or drops the wait for it.
    unsafe fn release_held(&self, kept: Option<NonNull<ColorCell>>) {
        let goes = |member: &&Member| member.is_held() && Some(member.color) != kept;
        if !self.members().iter().any(|member| goes(&member)) {
            return;
        }
        // While its wait is being dropped, each side may let go of a color that the other one sees as held, and a color that
        // was let go of may be gone: so the hold is taken before the color is looked at. Otherwise the request is ours alone.
        let shared = self.ticket().is_some_and(Ticket::is_being_dropped);
        let left = context::with_worker(|worker| {
            if shared || !ptr::eq(&*worker.shared, self.shared) {
                return true;
            }
            let mut afterwards = Afterwards::new();
            let mut left = false;
            let mut queue = worker.slot().lock();
            for member in self.members().iter().filter(goes) {
                // SAFETY: promised by the caller; those at home here stay here while we have the lock.
                left |= unsafe { !member.release_at_home(worker.index, &mut queue, &mut afterwards) };
            }
            drop(queue);
            afterwards.settle(&worker.shared);
            left
        });
        if left.unwrap_or(true) {
            let elsewhere = self.members().iter().filter(goes);
            worker::away(|| {
                for member in elsewhere.filter(|member| member.take_hold(shared)) {
                    // SAFETY: the hold was taken.
                    unsafe { member.release() };
                }
            });
        }
    }

    /// Traces the closure that is about to be posted.
    fn trace(&self) {
        // With no color at all, nothing is accepted.
        if let Some(member) = self.members().first()
            && let Some(record) = trace::accept(member.cell(), self.origin)
        {
            self.record.set(record.as_ptr());
        }
    }

    fn take_record(&self) -> Option<Record> {
        let record = NonNull::new(self.record.replace(ptr::null_mut()))?;
        // SAFETY: `trace` put it there, and nobody has it any more.
        Some(unsafe { trace::take(record) })
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.check_alive();
        // SAFETY: counted, until the request is freed.
        unsafe { self.ticket.get().as_ref() }
    }

    fn ticket_counted(&self) -> Option<Arc<Ticket>> {
        self.ticket().map(|ticket| {
            // SAFETY: it came from an `Arc`, of which the request has a count.
            unsafe {
                Arc::increment_strong_count(ticket);
                Arc::from_raw(ticket)
            }
        })
    }

    /// # Safety
    /// Nobody uses the request any more.
    pub(crate) unsafe fn free(this: NonNull<Request>) {
        // SAFETY: promised by the caller; the count that `wait` put there.
        unsafe {
            let ticket = this.as_ref().ticket.get();
            (this.as_ref().work.free)(this);
            if !ticket.is_null() {
                drop(Arc::from_raw(ticket));
            }
        }
    }
}
