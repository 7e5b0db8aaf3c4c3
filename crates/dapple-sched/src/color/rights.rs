//! A thread's rights to a color, as types: safe code that has the value has the right.
//!
//! | type | says | gives |
//! |---|---|---|
//! | [`ColorRef`] | the color is alive for `'a` | its atomic fields |
//! | [`HomeGuard`] | the lock of its home worker is held | state and links; the fifo too, unless the color runs elsewhere |
//! | [`FifoGuard`] | this thread owns its fifo | the fifo |
//! | [`ColorTurn`] | it runs on this thread, in this turn | the color, alive; the fifo; its next state |
//! | [`Hold`] | it is held for the owner of the value, alone or for reading | the color, which stays alive; a place among the readers |
//! | [`Notified`] | its bit `NOTIFIED` is set, and it is in no remote list | the color, alive; linking it |
//! | [`Dead`] | it can be reached by this value only | freeing it |

use std::marker::PhantomData;
use std::ops::DerefMut;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

pub(crate) use crate::color::cell::fifo::FifoGuard;
use crate::color::cell::{ColorCell, Kind, Links, State};
use crate::color::ext::Ext;
use crate::color::holder::Holder;
use crate::color::node::{Granted, Origin, OwnedNode};
use crate::hold::Ended;
use crate::memory::alive::Alive;
use crate::runtime::shared::{Linked, Shared};
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Guard;
use crate::worker::Worker;
use crate::worker::own_queue::OwnQueue;
use crate::worker::run_queue::{FIRST, RunQueue};

/// A color that is alive for `'a`: it has a handle, or it is held, running or queued.
pub(crate) type ColorRef<'a> = Alive<'a, ColorCell>;

impl<'a> ColorRef<'a> {
    /// The runtime of this color, alive as long as the color.
    #[inline]
    pub(crate) fn runtime(self) -> &'a Shared {
        self.get().shared()
    }

    /// The same, kept alive by the value.
    pub(crate) fn counted_runtime(self) -> Arc<Shared> {
        self.runtime().counted()
    }

    /// Pushes a node to the inbox; `outside`: from no worker's callback. The caller links the color
    /// that this returns.
    #[inline]
    pub(crate) fn push_inbox(self, node: OwnedNode, outside: bool) -> Option<Notified> {
        self.get().push_inbox(node, outside).then_some(Notified(self.ptr()))
    }

    /// Locks the home of the color, which may move while this waits for the lock.
    #[inline]
    pub(crate) fn lock_home(self) -> HomeGuard<'a, Guard<'a, RunQueue>> {
        let (_, queue) = self.runtime().lock_home(self.get());
        HomeGuard { queue, color: self }
    }
}

/// The lock of a color's home worker, held.
///
/// `Q` is the lock's guard, or a `&mut` to the queue behind one.
pub(crate) struct HomeGuard<'c, Q> {
    queue: Q,
    color: ColorRef<'c>,
}

impl<'h, 'c> HomeGuard<'c, &'h mut RunQueue> {
    /// `None` if the lock of the color's home is not among these.
    #[inline]
    pub(crate) fn among(queues: &'h mut [Guard<'_, RunQueue>], color: ColorRef<'c>) -> Option<Self> {
        let queue = queues.iter_mut().find(|queue| queue.is_home_of(&color))?;
        Some(HomeGuard { queue, color })
    }
}

impl<'c, Q: DerefMut<Target = RunQueue>> HomeGuard<'c, Q> {
    /// `None` if the color is at home on another worker.
    #[inline]
    pub(crate) fn of(queue: Q, color: ColorRef<'c>) -> Option<HomeGuard<'c, Q>> {
        if queue.is_home_of(&color) { Some(HomeGuard { queue, color }) } else { None }
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'c> {
        self.color
    }

    /// The index of the home worker.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.queue.worker()
    }

    /// Whether that worker has stopped, so that nothing may be queued there any more.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.closed
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.links(|links| links.state)
    }

    #[inline]
    fn links<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        // SAFETY: the home lock is held, and no `f` of this module asks for the links again.
        unsafe { self.color.get().links(f) }
    }

    /// The rank under which the color is queued, and its list.
    #[inline]
    pub(crate) fn place(&self) -> (u8, u8) {
        self.links(|links| (links.queued_rank, links.list))
    }

    /// The holder of the `Held` color, and the place in the program that asked for it.
    pub(crate) fn holder(&self) -> Option<(Holder, Option<Origin>)> {
        self.links(|links| {
            // SAFETY: the link is a location that `set_held` put there.
            let origin = || unsafe { links.next.cast::<Location<'_>>().as_ref() };
            (links.state == State::Held).then(|| (Holder::from_code(links.prev.addr()), origin()))
        })
    }

    /// How many readers hold the color.
    pub(crate) fn readers(&self) -> u32 {
        self.links(|links| links.readers)
    }

    /// How often another worker has taken the color over.
    pub(crate) fn stolen(&self) -> u64 {
        u64::from(self.links(|links| links.stolen)) + self.color.ext.get().map_or(0, Ext::stolen)
    }

    /// Counts that another worker takes the color over.
    pub(crate) fn count_stolen(&mut self) {
        let stolen = self.links(|links| {
            links.stolen = links.stolen.wrapping_add(1);
            links.stolen
        });
        if stolen == 0 {
            self.color.ext.get_or_make().add_stolen(1 << u8::BITS);
        }
    }

    /// The fifo of a color that does not run.
    #[inline]
    pub(crate) fn fifo(&mut self) -> Option<FifoGuard<'_>> {
        // SAFETY: the home lock owns the fifo in every state but `Running`.
        if self.state() != State::Running { Some(unsafe { FifoGuard::new(self.color) }) } else { None }
    }

    /// The fifo of a color that runs on no worker but this thread's.
    #[inline]
    pub(crate) fn fifo_of(&mut self, worker: &Worker) -> Option<FifoGuard<'_>> {
        let free = self.state() != State::Running || self.is_of(worker);
        // SAFETY: the home lock owns the fifo, or else the color's turn on this thread does: no
        // other thread has a `&Worker` of it.
        if free { Some(unsafe { FifoGuard::new(self.color) }) } else { None }
    }

    /// Whether the color is at home on this worker, and runs on no other one.
    #[inline]
    pub(crate) fn is_of(&self, worker: &Worker) -> bool {
        !switches::shared_queue() && self.is_at(worker)
    }

    /// Whether the color is at home on this worker.
    #[inline]
    fn is_at(&self, worker: &Worker) -> bool {
        worker.index == self.index() && ptr::eq(&*worker.shared, self.color.shared)
    }

    /// Whether the color can be held at once: nothing waits in it, and it has no holder, or only
    /// readers if the caller reads, too.
    #[inline]
    pub(crate) fn is_free(&self, reads: bool) -> bool {
        !self.color.inbox_waits() && self.is_free_but_for_inbox(reads)
    }

    /// As [`HomeGuard::is_free`], but ignores the inbox, which counts as later.
    #[inline]
    pub(crate) fn is_free_but_for_inbox(&self, reads: bool) -> bool {
        match self.state() {
            State::Idle => self.color.len() == 0,
            State::Reading => reads && self.color.len() == 0,
            State::Queued | State::Running | State::Held => false,
        }
    }

    /// Holds a color that [`HomeGuard::is_free_but_for_inbox`].
    #[inline]
    pub(crate) fn hold(&mut self, reads: bool, holder: Holder, origin: Option<Origin>) -> Hold {
        let color = self.color.ptr();
        self.links(|links| {
            if reads {
                assert!(matches!(links.state, State::Idle | State::Reading), "a color that is read is free");
                links.add_readers(1);
            } else {
                assert!(links.state == State::Idle, "a color that is held was idle");
                links.set_held(holder, origin);
            }
        });
        Hold { color, reads }
    }

    /// Takes one reader off. Returns the hold of the last one, which then has the color alone.
    fn leave_readers(&mut self, hold: Hold) -> Option<Hold> {
        self.assert_same(&hold);
        let color = hold.color;
        self.links(|links| {
            links.readers -= 1;
            (links.readers == 0).then(|| {
                links.set_held(Holder::here(), None);
                Hold { color, reads: false }
            })
        })
    }

    /// Turns the hold of one holder into a hold for reading; that holder is the only reader so far.
    pub(crate) fn become_reader(&mut self, hold: Hold) -> Hold {
        self.assert_same(&hold);
        assert!(!hold.reads, "it was held for one");
        let color = hold.color;
        self.links(|links| {
            links.state = State::Idle;
            links.add_readers(1);
        });
        Hold { color, reads: true }
    }

    /// Releases a color, unless something waits in it.
    #[inline]
    pub(crate) fn end_hold(&mut self, mut hold: Hold) -> Ended {
        if hold.reads {
            match self.leave_readers(hold) {
                Some(last) => hold = last,
                None => return Ended::Readers,
            }
        }
        self.assert_same(&hold);
        self.fifo().expect("a held color does not run").drain_inbox();
        if self.color.len() > 0 {
            return Ended::Waits(hold);
        }
        self.links(|links| links.state = State::Idle);
        Ended::Idle(self.dead())
    }

    /// Makes a color idle that has no waiting nodes and is not dead.
    #[inline]
    pub(crate) fn make_idle(&mut self, hold: Hold) {
        self.assert_same(&hold);
        assert!(!hold.reads, "others may read it");
        self.links(|links| links.state = State::Idle);
    }

    /// Ends the hold of a color with waiting nodes, and queues it instead.
    #[inline]
    pub(crate) fn queue_held(&mut self, hold: Hold) {
        self.assert_same(&hold);
        assert!(!hold.reads, "a color that is read is not queued");
        self.push();
        self.stay_first();
    }

    /// Puts the color, which was held or had a turn, in front of its list if it is queued and its
    /// next node is a task's wait. At the end of the list, each wait would take a whole round; as
    /// many new waits would arrive meanwhile, and so on for ever.
    pub(crate) fn stay_first(&mut self) {
        if self.state() == State::Queued && self.fifo().is_some_and(|fifo| fifo.has_wait_next()) {
            self.queue_first();
        }
    }

    /// A task waits, in the middle of its poll, for a color to which it has just posted: the color
    /// goes before others. If the color runs, is held or is read, it goes first when that ends
    /// ([`HomeGuard::stay_first`]).
    pub(crate) fn hasten(&mut self) {
        if self.is_closed() {
            return;
        }
        match self.state() {
            State::Idle | State::Queued => {
                self.drain_inbox();
                if self.color.len() > 0 {
                    self.queue_first();
                }
            }
            State::Running | State::Held | State::Reading => {}
        }
    }

    /// As [`HomeGuard::hasten`]; the color may also move to the queue of this thread's worker.
    /// False if the color does not move.
    pub(crate) fn hasten_to(mut self, own: &mut RunQueue) -> bool {
        let color = self.color;
        let waits = matches!(self.state(), State::Idle | State::Queued);
        if !waits || color.is_pinned() || self.is_closed() || own.closed {
            return false;
        }
        self.drain_inbox();
        if color.len() > 0 {
            let (_, list) = self.place();
            // Otherwise two workers could keep taking it from each other.
            if self.state() == State::Queued && list & FIRST != 0 && !color.runtime().slots[self.index()].is_overdue() {
                return true;
            }
            self.move_to(own);
            HomeGuard { queue: own, color }.queue_first();
        }
        true
    }

    /// Drains the inbox of a color that does not run.
    fn drain_inbox(&mut self) {
        self.fifo().expect("it does not run").drain_inbox();
    }

    /// Puts the color, which is not empty, in front of its express list, unless too many went there
    /// recently.
    fn queue_first(&mut self) {
        if self.state() != State::Queued {
            self.push();
        }
        self.fifo().expect("it is queued").make_express();
        let (_, list) = self.place();
        if list & FIRST == 0 {
            self.raise();
            // SAFETY: its home lock is held, and it is queued.
            unsafe { self.queue.put_first(self.color) };
        }
    }

    /// Queues a color that has just received a node; the queue is not closed. Returns requests to
    /// read that join the present readers.
    #[inline]
    pub(crate) fn enqueue(&mut self) -> Granted {
        match self.state() {
            State::Idle => self.push(),
            State::Queued => self.raise(),
            State::Running | State::Held => {}
            // Uses a separate guard, so that this one stays in registers.
            State::Reading => return HomeGuard { queue: &mut *self.queue, color: self.color }.let_read(None),
        }
        Granted::none()
    }

    /// Puts the color, which is in no queue, at the end of the list of its rank.
    #[inline]
    fn push(&mut self) {
        // SAFETY: the color does not run any more, and the home lock is held.
        let rank = unsafe { FifoGuard::new(self.color) }.rank();
        self.links(|links| {
            links.state = State::Queued;
            links.queued_rank = rank;
        });
        // SAFETY: its home lock is held, and its state was not `Queued`.
        unsafe { self.queue.append(self.color, rank) };
    }

    /// Moves a queued color up if its nodes outrank the rank under which it is queued.
    #[inline]
    fn raise(&mut self) {
        let Some(rank) = self.fifo().map(|fifo| fifo.rank()) else { return };
        if self.queue.outranks(rank, self.links(|links| links.queued_rank)) {
            self.links(|links| links.queued_rank = rank);
            // SAFETY: its home lock is held, and it is queued.
            unsafe { self.queue.move_up(self.color, rank) };
        }
    }

    /// Takes a queued color out of its list. The caller sets its state.
    fn unlist(&mut self) {
        assert!(self.state() == State::Queued, "it is in the queue");
        // SAFETY: its home lock is held, and it is queued.
        unsafe { self.queue.remove(self.color) };
    }

    /// Moves the home of a color that neither runs nor is read to the worker of another queue,
    /// which is not closed; a queued color moves to that queue.
    pub(crate) fn move_to(mut self, queue: &mut RunQueue) {
        let state = self.state();
        assert!(!matches!(state, State::Running | State::Reading) && !self.color.is_pinned(), "it may move");
        assert!(queue.is_beside(&self.queue), "a color stays in its runtime");
        if state == State::Queued {
            self.unlist();
        }
        // Relaxed: under the locks of both homes.
        self.color.home.store(queue.worker() as u16, Relaxed);
        if state == State::Queued {
            HomeGuard { queue, color: self.color }.push();
        }
    }

    /// Begins a turn of a color that is idle or queued here, at home on this thread's worker.
    #[inline]
    pub(crate) fn begin_turn(&mut self, worker: &Worker) -> Option<ColorTurn> {
        if !self.is_at(worker) {
            return None;
        }
        match self.state() {
            State::Queued => self.unlist(),
            // An idle color has no rank that a cut turn could leave behind.
            State::Idle => self.links(|links| links.queued_rank = 0),
            State::Running | State::Held | State::Reading => return None,
        }
        self.links(|links| links.state = State::Running);
        let mut turn = ColorTurn(self.color.ptr());
        turn.fifo().reset_rank();
        Some(turn)
    }

    /// Ends a turn in the common case. Returns the turn of a color that may be dead and needs a
    /// second check.
    #[inline]
    pub(crate) fn end_turn(&mut self, mut turn: ColorTurn) -> Option<ColorTurn> {
        turn.fifo().drain_inbox();
        // Relaxed: the number of handles reaches 0 only under this lock.
        if self.color.len() > 0 {
            self.queue_turn(turn);
            None
        } else if self.color.refs.load(Relaxed) > 0 {
            self.assert_ran(&turn);
            turn.fifo().reset_rank();
            self.links(|links| links.state = State::Idle);
            None
        } else {
            Some(turn)
        }
    }

    /// Ends a turn of a color that has more to run.
    #[inline]
    pub(crate) fn queue_turn(&mut self, turn: ColorTurn) {
        self.assert_ran(&turn);
        self.push();
    }

    /// Ends a turn of a color after that second check.
    #[inline]
    pub(crate) fn make_idle_after(&mut self, mut turn: ColorTurn) {
        self.assert_ran(&turn);
        if self.color.len() == 0 {
            turn.fifo().reset_rank();
        }
        self.links(|links| links.state = State::Idle);
    }

    /// Ends a turn with a hold of its color.
    pub(crate) fn hold_after(&mut self, turn: ColorTurn, holder: Holder, origin: Option<Origin>) -> Hold {
        self.assert_ran(&turn);
        self.links(|links| links.set_held(holder, origin));
        Hold { color: self.color.ptr(), reads: false }
    }

    /// Ends a turn that has reached a waiting node, and hands it the color. If the node reads, the
    /// readers directly after it join.
    pub(crate) fn hand_over(&mut self, turn: ColorTurn, node: OwnedNode) -> Granted {
        if node.reads() {
            self.make_idle_after(turn);
            return self.let_read(Some(node));
        }
        _ = self.hold_after(turn, node.holder(), Some(node.posted_from()));
        let mut granted = Granted::none();
        // SAFETY: the hold belongs to the node.
        unsafe { granted.push(node) };
        granted
    }

    /// Lets requests to read join the present readers, if there are any.
    pub(crate) fn admit_readers(&mut self) -> Granted {
        if self.state() == State::Reading { self.let_read(None) } else { Granted::none() }
    }

    /// Lets `first` and the requests to read at the front of the fifo hold the color together. The
    /// color is `Reading` or idle.
    #[cold]
    fn let_read(&mut self, first: Option<OwnedNode>) -> Granted {
        let mut granted = Granted::none();
        let mut admitted = 0;
        let mut first = first;
        let mut fifo = self.fifo().expect("it does not run");
        while let Some(node) = first.take().or_else(|| fifo.pop_reader()) {
            admitted += 1;
            // SAFETY: `add_readers` holds the color for it before the lock is released.
            unsafe { granted.push(node) };
        }
        if admitted > 0 {
            self.links(|links| links.add_readers(admitted));
        }
        granted
    }

    /// The right to link this color, if this thread has just set its bit.
    pub(super) fn notified(&self, set: bool) -> Option<Notified> {
        set.then_some(Notified(self.color.ptr()))
    }

    /// Moves the color to its best home; see [`FifoGuard::partner`].
    pub(crate) fn come_home(mut self, queue: &mut RunQueue) {
        self.fifo().expect("it does not run").come_home();
        self.move_to(queue);
    }

    /// The right to free an idle color that nothing can reach any more; a named color leaves the
    /// registry first.
    pub(crate) fn dead(&mut self) -> Option<Dead> {
        let cell = self.color;
        // Acquire pairs with the decrements in `Color::drop`.
        let dead = cell.kind != Kind::Default
            && cell.refs.load(Acquire) == 0
            && self.state() == State::Idle
            && cell.len() == 0
            && cell.inbox_vacant()
            && (cell.kind != Kind::Named || cell.runtime().registry.remove_unused(&cell));
        dead.then_some(Dead(cell.ptr()))
    }

    #[inline]
    fn assert_ran(&self, turn: &ColorTurn) {
        assert!(turn.0 == self.color.ptr(), "the turn is one of this color");
    }

    #[inline]
    fn assert_same(&self, hold: &Hold) {
        assert!(hold.color == self.color.ptr(), "the hold is one of this color");
    }
}

impl<'c, 'q> HomeGuard<'c, &'q mut RunQueue> {
    /// # Safety
    /// The queue is that of the color's home.
    #[inline]
    pub(crate) unsafe fn new(queue: &'q mut RunQueue, color: ColorRef<'c>) -> Self {
        HomeGuard { queue, color }
    }
}

/// A color that is `Running` on this thread. Keeps the color alive, and gives the right to its fifo
/// and to set its next state.
///
/// A value that goes out of scope, without one of the calls that consume it, leaves the color
/// `Running`.
#[must_use]
pub(crate) struct ColorTurn(NonNull<ColorCell>);

impl ColorTurn {
    /// # Safety
    /// The color is `Running`, at home on this thread's worker, and no other `ColorTurn` exists for
    /// it.
    #[inline]
    pub(crate) unsafe fn new(color: NonNull<ColorCell>) -> ColorTurn {
        ColorTurn(color)
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'_> {
        // SAFETY: a running color is alive.
        unsafe { ColorRef::new(self.0) }
    }

    #[inline]
    pub(crate) fn fifo(&mut self) -> FifoGuard<'_> {
        // SAFETY: the turn owns the fifo.
        unsafe { FifoGuard::new(self.color()) }
    }

    /// Gives up the turn without ending it.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<ColorCell> {
        self.0
    }

    /// Calls `f` with the turn, and with the color's home in its worker's own queue.
    #[inline]
    pub(crate) fn at_home<R>(
        self,
        queue: &mut OwnQueue<'_>,
        f: impl FnOnce(HomeGuard<'_, &mut RunQueue>, ColorTurn) -> R,
    ) -> R {
        // SAFETY: a running color stays at home, on this thread's worker, and this is that worker's
        // queue. No color is freed before its lock is released, and safe code frees none.
        let home = unsafe { HomeGuard::new(queue, ColorRef::new(self.0)) };
        debug_assert!(home.queue.is_home_of(&home.color), "one thread is one worker");
        f(home, self)
    }
}

/// A color that is `Held`, or `Reading`, for the owner of this value, which keeps it alive.
///
/// A value that goes out of scope, without [`crate::hold::release`] or a call that consumes it,
/// leaves the color held.
#[must_use]
pub(crate) struct Hold {
    color: NonNull<ColorCell>,
    reads: bool,
}

impl Hold {
    /// # Safety
    /// The color is `Held` for the caller, or `Reading` if it `reads`, and the caller gives up that
    /// hold.
    #[inline]
    pub(crate) unsafe fn new(color: NonNull<ColorCell>, reads: bool) -> Hold {
        Hold { color, reads }
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'_> {
        // SAFETY: a held color is alive.
        unsafe { ColorRef::new(self.color) }
    }

    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    /// Calls `f` with the color and the hold, which `f` may give up: no color is freed before its
    /// lock is released, and safe code frees none.
    #[inline]
    pub(crate) fn with_color<R>(self, f: impl FnOnce(ColorRef<'_>, Hold) -> R) -> R {
        // SAFETY: as in `color`, and as above.
        f(unsafe { ColorRef::new(self.color) }, self)
    }
}

/// The duty to link a color with a filled inbox into its home's remote list; keeps the color alive.
#[must_use]
pub(crate) struct Notified(NonNull<ColorCell>);

impl Notified {
    pub(super) fn is_of(&self, color: ColorRef<'_>) -> bool {
        self.0 == color.ptr()
    }

    /// Links the color into its home's list. If the worker there has stopped, returns the duty to
    /// the caller.
    pub(crate) fn link(self) -> Option<Notified> {
        self.with_color(|color, this| (color.runtime().link_remote(color.ptr()) == Linked::Closed).then_some(this))
    }

    /// As [`Hold::with_color`].
    #[inline]
    pub(crate) fn with_color<R>(self, f: impl FnOnce(ColorRef<'_>, Notified) -> R) -> R {
        // SAFETY: `NOTIFIED` keeps the cell alive until it is cleared, under the home lock.
        f(unsafe { ColorRef::new(self.0) }, self)
    }
}

/// A list of colors, chained by `remote_next`, which only the owner of the list may use.
pub(crate) struct ColorList<T> {
    head: *mut ColorCell,
    colors: PhantomData<T>,
}

/// A value that represents a color and owns its `remote_next`.
pub(crate) trait OwnsLink {
    fn into_raw(self) -> NonNull<ColorCell>;

    /// # Safety
    /// It came from `into_raw`, once.
    unsafe fn from_raw(color: NonNull<ColorCell>) -> Self;
}

impl<T: OwnsLink> ColorList<T> {
    #[inline]
    pub(crate) fn new() -> ColorList<T> {
        ColorList { head: ptr::null_mut(), colors: PhantomData }
    }

    /// # Safety
    /// `head` is the first color of a list through `remote_next`; the caller has a `T` for each of
    /// them and gives it up.
    pub(crate) unsafe fn from_raw(head: *mut ColorCell) -> ColorList<T> {
        ColorList { head, colors: PhantomData }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    pub(crate) fn push(&mut self, color: T) {
        let color = color.into_raw();
        // SAFETY: the owner of the link keeps the cell alive. Relaxed: the list belongs to this
        // thread.
        unsafe { color.as_ref() }.remote_next.store(self.head, Relaxed);
        self.head = color.as_ptr();
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let color = NonNull::new(self.head)?;
        // SAFETY: pushed as a `T`, and taken out once.
        unsafe {
            // Relaxed: as in `push`.
            self.head = color.as_ref().remote_next.load(Relaxed);
            Some(T::from_raw(color))
        }
    }
}

/// A color with no handle, in no queue and in no list; [`crate::hold::free`] frees it.
#[must_use]
pub(crate) struct Dead(NonNull<ColorCell>);

impl OwnsLink for Dead {
    fn into_raw(self) -> NonNull<ColorCell> {
        self.0
    }

    /// # Safety
    /// As in [`OwnsLink`].
    unsafe fn from_raw(color: NonNull<ColorCell>) -> Dead {
        Dead(color)
    }
}

impl OwnsLink for Notified {
    fn into_raw(self) -> NonNull<ColorCell> {
        self.0
    }

    /// # Safety
    /// The caller has set `NOTIFIED`, or has taken the color off a remote list, and has not linked
    /// it since.
    unsafe fn from_raw(color: NonNull<ColorCell>) -> Notified {
        Notified(color)
    }
}
