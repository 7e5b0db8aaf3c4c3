//! What a thread may do with a color, as types: safe code that has the value has the right.
//!
//! | type | says | gives |
//! |---|---|---|
//! | [`ColorRef`] | the color is alive for `'a` | what is atomic in it |
//! | [`HomeGuard`] | the lock of its home worker is held | state and links; the fifo too, unless the color runs elsewhere |
//! | [`FifoGuard`] | this thread owns its fifo | the fifo |
//! | [`ColorTurn`] | it runs on this thread, by the turn that is this value | the color, alive; the fifo; its next state |
//! | [`Hold`] | it is held for the owner of the value, alone or for reading | the color, alive; a place among the readers |
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

/// A color that is alive for `'a`: there is a handle, or it is held, runs, or is queued meanwhile.
pub(crate) type ColorRef<'a> = Alive<'a, ColorCell>;

impl<'a> ColorRef<'a> {
    /// The runtime of this color, alive as long as it.
    #[inline]
    pub(crate) fn runtime(self) -> &'a Shared {
        self.get().shared()
    }

    /// The same, kept alive by the value.
    pub(crate) fn counted_runtime(self) -> Arc<Shared> {
        self.runtime().counted()
    }

    /// Pushes a node to the inbox; `outside`: of no worker's callback. What is returned is to be linked.
    #[inline]
    pub(crate) fn push_inbox(self, node: OwnedNode, outside: bool) -> Option<Notified> {
        self.get().push_inbox(node, outside).then_some(Notified(self.ptr()))
    }

    /// Locks the home of the color, which may move while this waits for it.
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
    /// `None`: the lock of the color's home is not among these.
    #[inline]
    pub(crate) fn among(queues: &'h mut [Guard<'_, RunQueue>], color: ColorRef<'c>) -> Option<Self> {
        let queue = queues.iter_mut().find(|queue| queue.is_home_of(&color))?;
        Some(HomeGuard { queue, color })
    }
}

impl<'c, Q: DerefMut<Target = RunQueue>> HomeGuard<'c, Q> {
    /// `None`: the color is at home on another worker.
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

    /// Whether that worker has stopped, so that nothing may be queued any more.
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

    /// The rank under which the color is queued, and the list that it stands in.
    #[inline]
    pub(crate) fn place(&self) -> (u8, u8) {
        self.links(|links| (links.queued_rank, links.list))
    }

    /// The holder of the color, which is `Held`, and where that was asked for.
    pub(crate) fn holder(&self) -> Option<(Holder, Option<Origin>)> {
        self.links(|links| {
            // SAFETY: the link is a location that `set_held` put there.
            let origin = || unsafe { links.next.cast::<Location<'_>>().as_ref() };
            (links.state == State::Held).then(|| (Holder::from_code(links.prev.addr()), origin()))
        })
    }

    /// How many hold the color for reading.
    pub(crate) fn readers(&self) -> u32 {
        self.links(|links| links.readers)
    }

    /// How often another worker has taken the color over.
    pub(crate) fn stolen(&self) -> u64 {
        u64::from(self.links(|links| links.stolen)) + self.color.ext.get().map_or(0, Ext::stolen)
    }

    /// Another worker takes the color over.
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
        // SAFETY: the home lock owns the fifo in all states but one.
        if self.state() != State::Running { Some(unsafe { FifoGuard::new(self.color) }) } else { None }
    }

    /// The fifo of a color that does not run elsewhere, for the worker that is this thread.
    #[inline]
    pub(crate) fn fifo_of(&mut self, worker: &Worker) -> Option<FifoGuard<'_>> {
        let free = self.state() != State::Running || self.is_of(worker);
        // SAFETY: the home lock owns the fifo, or the turn of the color does, which is this thread's: no other thread has a
        // `&Worker` of it.
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

    /// Whether the color can be held at once: nothing waits in it, and nothing has it, but readers where one reader more asks.
    #[inline]
    pub(crate) fn is_free(&self, reads: bool) -> bool {
        !self.color.inbox_waits() && self.is_free_but_for_inbox(reads)
    }

    /// As [`HomeGuard::is_free`], where what is in the inbox by now comes later.
    #[inline]
    pub(crate) fn is_free_but_for_inbox(&self, reads: bool) -> bool {
        match self.state() {
            State::Idle => self.color.len() == 0,
            State::Reading => reads && self.color.len() == 0,
            State::Queued | State::Running | State::Held => false,
        }
    }

    /// Holds a color that is free, as [`HomeGuard::is_free_but_for_inbox`] says.
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

    /// Takes one reader off. The last one is left with the color for itself.
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

    /// Lets a color that is held for one go to those who read it; the former holder becomes the only one so far.
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

    /// Lets go of a color, unless something waits in it.
    #[inline]
    pub(crate) fn end_hold(&mut self, mut hold: Hold) -> Ended {
        if hold.reads {
            match self.leave_readers(hold) {
                Some(last) => hold = last,
                None => return Ended::Readers,
            }
        }
        self.assert_same(&hold);
        self.fifo().expect("what is held does not run").drain_inbox();
        if self.color.len() > 0 {
            return Ended::Waits(hold);
        }
        self.links(|links| links.state = State::Idle);
        Ended::Idle(self.dead())
    }

    /// Makes a color idle in which nothing waits, and which is not dead.
    #[inline]
    pub(crate) fn make_idle(&mut self, hold: Hold) {
        self.assert_same(&hold);
        assert!(!hold.reads, "others may read it");
        self.links(|links| links.state = State::Idle);
    }

    /// Gives the color, which is not empty, its place in the run queue, instead of the hold.
    #[inline]
    pub(crate) fn queue_held(&mut self, hold: Hold) {
        self.assert_same(&hold);
        assert!(!hold.reads, "what is read is not queued");
        self.push();
        self.stay_first();
    }

    /// Puts the color, which was held or had a turn, in front of its list if it is queued and a task waits for it next. If it went
    /// last, so that each wait took a round of the list, as many would wait as come during a round, for good.
    pub(crate) fn stay_first(&mut self) {
        if self.state() == State::Queued && self.fifo().is_some_and(|fifo| fifo.has_wait_next()) {
            self.queue_first();
        }
    }

    /// A task waits in the middle of its poll for a color to which it has posted just now: the color goes before others. One that
    /// runs, is held or is read does so when that ends ([`HomeGuard::stay_first`]).
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

    /// As [`HomeGuard::hasten`], where the color may move to the queue of the worker that is this thread. False: it does not.
    pub(crate) fn hasten_to(mut self, own: &mut RunQueue) -> bool {
        let color = self.color;
        let waits = matches!(self.state(), State::Idle | State::Queued);
        if !waits || color.is_pinned() || self.is_closed() || own.closed {
            return false;
        }
        self.drain_inbox();
        if color.len() > 0 {
            let (_, list) = self.place();
            // Two workers are not to take it from each other for ever.
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

    /// Puts the color, which is not empty, in front of its express list, unless too many went there lately.
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

    /// Gives a color that has just received something its place in the run queue, which is not closed. Returns requests to
    /// read that join those who read the color now.
    #[inline]
    pub(crate) fn enqueue(&mut self) -> Granted {
        match self.state() {
            State::Idle => self.push(),
            State::Queued => self.raise(),
            State::Running | State::Held => {}
            // By a guard of its own, so that this one stays in registers.
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
        // SAFETY: its home lock is held, and its state was none in which it is queued.
        unsafe { self.queue.append(self.color, rank) };
    }

    /// Moves a queued color up if what waits in it has a higher rank than the one it is queued under.
    #[inline]
    fn raise(&mut self) {
        let Some(rank) = self.fifo().map(|fifo| fifo.rank()) else { return };
        if self.queue.outranks(rank, self.links(|links| links.queued_rank)) {
            self.links(|links| links.queued_rank = rank);
            // SAFETY: its home lock is held, and it is queued.
            unsafe { self.queue.move_up(self.color, rank) };
        }
    }

    /// Takes a queued color out of its list. Its state is to be set.
    fn unlist(&mut self) {
        assert!(self.state() == State::Queued, "it is in the queue");
        // SAFETY: its home lock is held, and it is queued.
        unsafe { self.queue.remove(self.color) };
    }

    /// Moves the home of a color that neither runs nor is read to the worker of another queue, which is not closed, with its
    /// place in the queue if it has one.
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

    /// Begins a turn of a color that is idle or queued here, and at home on this worker, which is this thread's.
    #[inline]
    pub(crate) fn begin_turn(&mut self, worker: &Worker) -> Option<ColorTurn> {
        if !self.is_at(worker) {
            return None;
        }
        match self.state() {
            State::Queued => self.unlist(),
            // There is nothing that a cut could leave as it was.
            State::Idle => self.links(|links| links.queued_rank = 0),
            State::Running | State::Held | State::Reading => return None,
        }
        self.links(|links| links.state = State::Running);
        let mut turn = ColorTurn(self.color.ptr());
        turn.fifo().reset_rank();
        Some(turn)
    }

    /// Ends a turn of a color as most do. What is returned is one that is to be looked at further: it may be dead.
    #[inline]
    pub(crate) fn end_turn(&mut self, mut turn: ColorTurn) -> Option<ColorTurn> {
        turn.fifo().drain_inbox();
        // Relaxed: its handles go down to 0 under this lock only.
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

    /// Ends a turn of a color that is to be looked at further.
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

    /// Ends a turn that has reached a node which waits: hands the color to it, and where it reads, to those behind it that do, too.
    pub(crate) fn hand_over(&mut self, turn: ColorTurn, node: OwnedNode) -> Granted {
        if node.reads() {
            self.make_idle_after(turn);
            return self.let_read(Some(node));
        }
        _ = self.hold_after(turn, node.holder(), Some(node.posted_from()));
        let mut granted = Granted::none();
        // SAFETY: the hold is the node's.
        unsafe { granted.push(node) };
        granted
    }

    /// Lets requests to read join those who read the color, if any do.
    pub(crate) fn admit_readers(&mut self) -> Granted {
        if self.state() == State::Reading { self.let_read(None) } else { Granted::none() }
    }

    /// Lets the requests to read at the front of the fifo, and `first` before them, hold the color together, which is `Reading` or
    /// idle.
    #[cold]
    fn let_read(&mut self, first: Option<OwnedNode>) -> Granted {
        let mut granted = Granted::none();
        let mut admitted = 0;
        let mut first = first;
        let mut fifo = self.fifo().expect("it does not run");
        while let Some(node) = first.take().or_else(|| fifo.pop_reader()) {
            admitted += 1;
            // SAFETY: `add_readers` holds the color for it, before the lock is released.
            unsafe { granted.push(node) };
        }
        if admitted > 0 {
            self.links(|links| links.add_readers(admitted));
        }
        granted
    }

    /// The news of this color, if its bit was just set.
    pub(super) fn notified(&self, set: bool) -> Option<Notified> {
        set.then_some(Notified(self.color.ptr()))
    }

    /// Sends the color where it belongs; see [`FifoGuard::partner`].
    pub(crate) fn come_home(mut self, queue: &mut RunQueue) {
        self.fifo().expect("it does not run").come_home();
        self.move_to(queue);
    }

    /// An idle color that nothing can reach any more; a named one has left the registry then.
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

/// A color that is `Running` on this thread: the right to its fifo, and to give it its next state, which keeps it alive.
///
/// One that goes out of scope without one of the calls that consume it leaves the color `Running`.
#[must_use]
pub(crate) struct ColorTurn(NonNull<ColorCell>);

impl ColorTurn {
    /// # Safety
    /// The color is `Running`, at home on the worker that is this thread, and no other value says so.
    #[inline]
    pub(crate) unsafe fn new(color: NonNull<ColorCell>) -> ColorTurn {
        ColorTurn(color)
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'_> {
        // SAFETY: what runs is alive.
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

    /// Calls `f` with the home of the color, which is in its worker's own queue, and the turn.
    #[inline]
    pub(crate) fn at_home<R>(
        self,
        queue: &mut OwnQueue<'_>,
        f: impl FnOnce(HomeGuard<'_, &mut RunQueue>, ColorTurn) -> R,
    ) -> R {
        // SAFETY: a color stays at home while it runs, on the worker that is this thread, and that is the queue of this worker. No
        // color is freed before its lock is released, and none by safe code.
        let home = unsafe { HomeGuard::new(queue, ColorRef::new(self.0)) };
        debug_assert!(home.queue.is_home_of(&home.color), "one thread is one worker");
        f(home, self)
    }
}

/// A color that is `Held`, or `Reading`, for the owner of this value, which keeps the color alive.
///
/// One that goes out of scope without [`crate::hold::release`] or one of the calls that consume it leaves the color held.
#[must_use]
pub(crate) struct Hold {
    color: NonNull<ColorCell>,
    reads: bool,
}

impl Hold {
    /// # Safety
    /// The color is `Held` for the caller, or `Reading` where it `reads`, and the caller gives up what it has.
    #[inline]
    pub(crate) unsafe fn new(color: NonNull<ColorCell>, reads: bool) -> Hold {
        Hold { color, reads }
    }

    #[inline]
    pub(crate) fn color(&self) -> ColorRef<'_> {
        // SAFETY: what is held is alive.
        unsafe { ColorRef::new(self.color) }
    }

    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    /// Calls `f` with the color and the hold, which `f` may give up: no color is freed before its lock is released, and none
    /// by safe code.
    #[inline]
    pub(crate) fn with_color<R>(self, f: impl FnOnce(ColorRef<'_>, Hold) -> R) -> R {
        // SAFETY: as in `color`, and as above.
        f(unsafe { ColorRef::new(self.color) }, self)
    }
}

/// The news that a color has something in its inbox, to be linked into its home's remote list; keeps the color alive.
#[must_use]
pub(crate) struct Notified(NonNull<ColorCell>);

impl Notified {
    pub(super) fn is_of(&self, color: ColorRef<'_>) -> bool {
        self.0 == color.ptr()
    }

    /// Links the color where it belongs. What is returned is left to the caller, as the worker there has stopped.
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

/// Colors of which only the owner of the list may use `remote_next`, chained by it.
pub(crate) struct ColorList<T> {
    head: *mut ColorCell,
    colors: PhantomData<T>,
}

/// A value that stands for a color whose `remote_next` goes with it.
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
    /// `head` is the first color of a list through `remote_next`, for each of which the caller has a `T` to give up.
    pub(crate) unsafe fn from_raw(head: *mut ColorCell) -> ColorList<T> {
        ColorList { head, colors: PhantomData }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    pub(crate) fn push(&mut self, color: T) {
        let color = color.into_raw();
        // SAFETY: what owns the link keeps the cell alive.
        // Relaxed: a list of this thread's own.
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

/// A color with no handle, in no queue and in no list, to be freed with [`crate::hold::free`].
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
    /// The caller has set `NOTIFIED`, or has taken the color off a remote list, and has not linked it since.
    unsafe fn from_raw(color: NonNull<ColorCell>) -> Notified {
        Notified(color)
    }
}
