//! A worker: takes the next color (this file), runs a turn of it (`turn`), and without one looks
//! for work or sleeps (`idle`).
//!
//! Imports everything from below: `sync`, `memory`, `color`, `runtime`, `observe`, `post`. From
//! above it uses holds and tasks, which a turn may meet. Begin with this file; then read
//! `run_queue`, `idle`, `placement`, and `monitor`, which watches all workers.
//!
//! One acquisition of the worker's own lock ends a turn, requeues its color, takes notifications
//! from other threads and pops the next color. A turn runs the callbacks that were queued when it
//! began, and if they are tiny, a few that the color has posted to itself since; a time slice cuts
//! it off.

pub(crate) mod alarm;
pub(crate) mod clock;
pub(crate) mod cores;
mod end;
mod idle;
pub(crate) mod local;
pub(crate) mod mark;
pub(crate) mod monitor;
mod nested;
pub(crate) mod own_queue;
pub(crate) mod placement;
mod policed;
pub(crate) mod policy;
mod rest;
pub(crate) mod run_queue;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod stepped;
pub(crate) mod tuning;
mod turn;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use crate::color::cell::{ColorCell, State};
use crate::color::node::OwnedNode;
use crate::color::rights::{ColorTurn, Hold, HomeGuard};
use crate::hold::{self, Ended};
use crate::memory::block::Blocks;
use crate::post::afterwards::Afterwards;
use crate::runtime::context::{self, Frame};
use crate::runtime::foreign;
use crate::runtime::fork;
use crate::runtime::shared::{Running, Shared, Slot};
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::task::FreeTasks;
use crate::worker::clock::Slice;
use crate::worker::cores::Busy;
use crate::worker::local::Locals;
use crate::worker::own_queue::OwnQueue;
use crate::worker::placement::REQUEST_POSTS;
use crate::worker::policed::Policed;
use crate::worker::run_queue::{EXPRESS, RunQueue};
use crate::worker::tuning::Tuning;

/// The private half of a worker; only its own thread touches it.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// This worker's entry in `shared`.
    slot: NonNull<Slot>,
    pub(crate) index: usize,
    pub(crate) blocks: Blocks,
    pub(crate) free_tasks: FreeTasks,
    /// Whether the driver is dispatching events on this thread: posts to idle colors bring them
    /// here.
    pub(crate) dispatches: Cell<bool>,
    /// The turn that has ended, while its color is not yet requeued.
    ended: Cell<Option<ColorTurn>>,
    /// The kind of that turn's end, if it is not the usual one.
    ending: Cell<Option<Ending>>,
    /// Another color that the callback of that turn held for writing, and that is released with it.
    held_besides: Cell<Option<NonNull<ColorCell>>>,
    /// The node of a waiter that the current turn has reached, and that gets the color.
    handoff: Cell<Option<OwnedNode>>,
    /// The current turn continues until its color has run this many callbacks in all. 0: the turn
    /// ends after this callback, because it has reached a waiter, its color was released, or the
    /// worker must poll the kernel.
    stop: Cell<u64>,
    /// Turns until one is timed; for short turns, callbacks.
    turns_to_look: Cell<u32>,
    /// For this many more times the worker only compares the elapsed time; see [`Worker::glance`].
    glances: Cell<u32>,
    /// The last clock reading for this.
    looked_at: Cell<Option<Instant>>,
    /// This many callbacks are timed one by one, because some took far longer than their colors'
    /// callbacks did before.
    wary: Cell<u32>,
    /// Time until the worker polls the kernel, as far as turns are timed.
    ns_to_poll: Cell<u64>,
    /// The interval of those polls, and the limit of a turn: a copy of the runtime's settings.
    pub(crate) tuning: Tuning,
    /// Whether the next turn may continue with callbacks that its color posts to itself meanwhile.
    goes_on: Cell<bool>,
    /// The number of callbacks that the color had run when the current turn began.
    began: Cell<u64>,
    /// The number of callbacks that a turn had run when the release of its color ended it.
    ran: Cell<u32>,
    /// While a turn is timed: the time that it has spent on traffic with other workers. See
    /// [`away`].
    away_ns: Cell<Option<u64>>,
    /// The number of light tasks in the stretch that this worker polls, or has polled and not put
    /// back.
    pub(crate) stretch: Cell<usize>,
    /// Whether the light task that is polled has been woken in its poll.
    pub(crate) woken: Cell<bool>,
    /// Stretches until one is timed.
    pub(crate) stretches_to_look: Cell<u32>,
    /// Mean time of a poll of a light task, 0 if unknown; and that of the last stretch, if it was
    /// timed.
    pub(crate) light_ns: Cell<u32>,
    pub(crate) poll_ns: Cell<Option<u32>>,
    /// Its frame, at the bottom of this thread's stack of frames.
    pub(crate) frame: Frame,
    pub(crate) spin_rounds: Cell<u32>,
    /// Turns until this worker may call for help again.
    pub(crate) help_pause: Cell<u32>,
    pub(crate) random: Cell<u32>,
    /// Whether the last sleep was a long one.
    wakes_seldom: Cell<bool>,
    /// The time since when it has not slept; see [`cores`].
    busy: Cell<Busy>,
    /// How often in a row it had waiting colors when the alarm was postponed.
    backlog: Cell<u32>,
    /// The number of occasions to skip before it offers help again, and the last such number;
    /// doubles while offers do not help.
    offer_pause: Cell<u32>,
    offer_pause_last: Cell<u32>,
    /// Values that must not leave this thread: state and futures of pinned colors.
    pub(crate) locals: Locals,
    /// The policy that picks the next color, if the program has one of its own.
    pub(crate) policed: Cell<Option<Box<Policed>>>,
}

/// The kind of a turn's end.
#[derive(Clone, Copy)]
struct Ending {
    cut: Cut,
    /// Whether it was a sample, so that the worker checks whether the color is at the right home.
    looked: bool,
}

impl Ending {
    /// The usual end: only the rest of the queue decides the color's next state.
    const SIMPLE: Ending = Ending { cut: Cut::No, looked: false };
}

/// Whether a turn ended before its batch did, so that callbacks still wait that waited when it
/// began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    No,
    /// By the time slice: the rest waits like any other work.
    Slice,
    /// By a panic, or for a waiter: it has not used up its time.
    Early,
}

/// A worker's next work.
enum Next {
    Turn(ColorTurn),
    /// Light tasks, which the worker has taken.
    Stretch,
    Nothing,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Worker {
        let index = if switches::shared_queue() { 0 } else { index };
        Worker {
            slot: NonNull::from(&shared.slots[index]),
            tuning: shared.tuning,
            ns_to_poll: Cell::new(shared.tuning.poll_every_ns),
            shared,
            index,
            blocks: Blocks::new(),
            free_tasks: FreeTasks::new(),
            dispatches: Cell::new(false),
            ended: Cell::new(None),
            ending: Cell::new(None),
            held_besides: Cell::new(None),
            handoff: Cell::new(None),
            stop: Cell::new(0),
            turns_to_look: Cell::new(0),
            glances: Cell::new(0),
            looked_at: Cell::new(None),
            wary: Cell::new(0),
            goes_on: Cell::new(false),
            began: Cell::new(0),
            ran: Cell::new(0),
            away_ns: Cell::new(None),
            stretch: Cell::new(0),
            woken: Cell::new(false),
            stretches_to_look: Cell::new(0),
            light_ns: Cell::new(0),
            poll_ns: Cell::new(None),
            frame: Frame::of_worker(),
            spin_rounds: Cell::new(4),
            help_pause: Cell::new(0),
            random: Cell::new(0x9e37_79b9 ^ (index as u32 + 1)),
            wakes_seldom: Cell::new(false),
            busy: Cell::new(Busy::since(0)),
            backlog: Cell::new(0),
            offer_pause: Cell::new(0),
            offer_pause_last: Cell::new(0),
            locals: Locals::default(),
            policed: Cell::new(None),
        }
    }

    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: `shared` owns it and is ours.
        unsafe { self.slot.as_ref() }
    }

    /// Works until the runtime stops.
    pub(crate) fn run(&self) {
        self.comes_round();
        while !self.shared.is_stopping() {
            self.catching(|| {
                while !self.shared.is_stopping() {
                    // Under a policy the first finds nothing, and the second asks the policy.
                    if self.try_step() || self.policed_step() || self.find_work() {
                        continue;
                    }
                    // One part at a time, so that work that arrives meanwhile does not wait.
                    if !self.blocks.give_back_some() && !self.free_tasks.give_back_some(&self.shared) {
                        self.sleep();
                    }
                }
            });
        }
        self.exit();
    }

    /// Ends the last turn, and runs a turn of the next color; false if there is none.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn step(&self) -> bool {
        let mut stepped = true;
        self.catching(|| stepped = self.try_step());
        stepped
    }

    /// Runs `work`. A panic ends only its callback (C8): the rest of its turn is queued again.
    /// Caught at this outer level, so that a turn pays nothing for it.
    fn catching(&self, work: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(work)) else { return };
        // The rest of a stretch of light tasks is queued again.
        self.frame.end_light();
        self.away_ns.set(None);
        self.slot().budget.end();
        let color = self.frame.color();
        crate::runtime::panics::report(&self.shared, color, payload);
        if let Some(color) = color {
            self.end_unwound(color);
        }
    }

    /// As [`Worker::step`]; a panic of a callback passes through.
    #[inline]
    fn try_step(&self) -> bool {
        match self.next() {
            Next::Turn(turn) => self.turn(turn),
            Next::Stretch => self.run_stretch(),
            Next::Nothing => return false,
        }
        true
    }

    /// Takes the next work.
    #[inline]
    fn next(&self) -> Next {
        let slot = self.slot();
        let mut queue = self.lock_own();
        let simple =
            self.end_simply(&mut queue) && (self.held_besides.get().is_none() || self.let_go_simply(&mut queue));
        if !simple || slot.remote_waits() || !queue.light.is_empty() || self.stretch.get() != 0 {
            return self.next_of_all(queue);
        }
        self.next_color(queue)
    }

    /// Takes the next color, unless there is other work.
    #[inline(always)]
    fn next_color(&self, mut queue: OwnQueue<'_>) -> Next {
        let slot = self.slot();
        let next = queue.pop().map(|turn| {
            slot.running.set(Running::Color(turn.color().id));
            self.goes_on.set(!queue.higher_waits() && !self.shared.policed);
            Next::Turn(turn)
        });
        let (waiting, tasks) = (queue.turns_waiting(), queue.light.len());
        drop(queue);
        // Relaxed: a hint for thieves.
        slot.len.store(waiting, Relaxed);
        if waiting > 0 {
            self.call_for_help(waiting, tasks);
        }
        next.unwrap_or_else(|| {
            slot.running.set(Running::Nothing);
            Next::Nothing
        })
    }

    /// Takes the next work, after everything that may come before.
    #[inline(never)]
    fn next_of_all(&self, mut queue: OwnQueue<'_>) -> Next {
        let slot = self.slot();
        let mut afterwards = Afterwards::new();
        self.end_last_turn(&mut queue, &mut afterwards);
        if slot.remote_waits() {
            self.take_news(&mut queue, &mut afterwards);
        }
        self.end_stretch(&mut queue);
        let next = if self.begin_stretch(&mut queue) {
            let (waiting, tasks) = (queue.turns_waiting(), queue.light.len());
            drop(queue);
            // Relaxed: a hint for thieves.
            slot.len.store(waiting, Relaxed);
            if waiting > 0 {
                self.call_for_help(waiting, tasks);
            }
            Next::Stretch
        } else {
            self.next_color(queue)
        };
        if !afterwards.is_empty() {
            afterwards.settle(&self.shared);
        }
        next
    }

    /// Gives the color of the last turn, if there is one, its next state.
    fn end_last_turn(&self, queue: &mut OwnQueue<'_>, afterwards: &mut Afterwards) {
        if let Some(turn) = self.ended.take() {
            let ending = self.ending.take();
            let handoff = if ending.is_some() { self.handoff.take() } else { None };
            self.end_turn(queue, turn, ending.unwrap_or(Ending::SIMPLE), handoff, afterwards);
        }
        if let Some(hold) = self.take_held_besides() {
            hold.with_color(|color, hold| {
                // A request that spans workers may have moved it meanwhile.
                let home = HomeGuard::of(&mut **queue, color).filter(|home| !home.is_closed());
                let Some(mut home) = home else { return afterwards.held = Some(hold) };
                match home.end_hold(hold) {
                    Ended::Idle(dead) => dead.into_iter().for_each(|dead| afterwards.dead.push(dead)),
                    Ended::Waits(hold) => home.queue_held(hold),
                    Ended::Readers => {}
                }
            });
        }
    }

    /// The running callback has held this color for writing, in addition to that of its turn, which
    /// ends now. It was at home here when the callback began.
    #[inline]
    pub(crate) fn lets_go_after_turn(&self, hold: Hold) {
        assert!(!hold.reads() && self.held_besides.get().is_none(), "one color, and for itself");
        self.held_besides.set(Some(hold.color().ptr()));
    }

    #[inline]
    fn take_held_besides(&self) -> Option<Hold> {
        // SAFETY: `lets_go_after_turn` was given the hold, which is taken once.
        self.held_besides.take().map(|color| unsafe { Hold::new(color, false) })
    }

    /// Releases the color that was held in addition to that of the turn, unless nothing can reach
    /// it any more: then false.
    #[inline]
    fn let_go_simply(&self, queue: &mut OwnQueue<'_>) -> bool {
        let Some(hold) = self.take_held_besides() else { return true };
        let left = hold.with_color(|color, hold| match HomeGuard::of(&mut **queue, color) {
            Some(home) => hold::release_simply(home, hold),
            None => Some(hold),
        });
        match left {
            Some(hold) => {
                self.lets_go_after_turn(hold);
                false
            }
            None => true,
        }
    }

    /// Gives the color of the last turn its next state in the simple cases; otherwise false.
    #[inline]
    fn end_simply(&self, queue: &mut OwnQueue<'_>) -> bool {
        if self.ending.get().is_some() {
            return false;
        }
        let Some(turn) = self.ended.take() else { return true };
        let left = turn.at_home(queue, |mut home, turn| home.end_turn(turn));
        let simple = left.is_none();
        if !simple {
            self.ended.set(left);
        }
        simple
    }

    /// Counts passed time, and polls the kernel if it is due.
    #[inline]
    pub(crate) fn pass_time(&self, ns: u64) {
        self.ns_to_poll.set(self.ns_to_poll.get().saturating_sub(ns));
        self.poll_if_due();
    }

    /// Counts time that has passed in the running callback, so that the worker polls the kernel
    /// after it.
    pub(crate) fn count_time(&self, ns: u64) {
        self.ns_to_poll.set(self.ns_to_poll.get().saturating_sub(ns));
        if self.ns_to_poll.get() == 0 {
            self.interrupt();
        }
    }

    /// Polls the kernel, if it is due.
    #[inline]
    fn poll_if_due(&self) {
        if self.ns_to_poll.get() == 0 {
            self.ns_to_poll.set(self.tuning.poll_every_ns);
            self.comes_round();
            self.poll_driver(self.index);
            if self.rests() {
                self.hand_over();
            }
        }
    }

    /// The current turn has reached a waiter: it ends here, and hands the color over.
    pub(crate) fn hand_off_after_turn(&self, node: OwnedNode) {
        let before = self.handoff.replace(Some(node));
        debug_assert!(before.is_none());
        self.interrupt();
    }

    /// Gives the color of an ended turn its next state. `handoff`: the node of a waiter that gets
    /// the color.
    fn end_turn(
        &self,
        queue: &mut OwnQueue<'_>,
        mut turn: ColorTurn,
        ending: Ending,
        handoff: Option<OwnedNode>,
        afterwards: &mut Afterwards,
    ) {
        let mut fifo = turn.fifo();
        fifo.drain_inbox();
        let more = turn.color().len() > 0;
        turn.at_home(queue, |mut home, mut turn| {
            let (queued_rank, _) = home.place();
            if ending.cut != Cut::No && more {
                // The callbacks that waited when the turn began still do. If a color has used up
                // its slice, it keeps express rank only for newly arrived work; otherwise a long
                // queue from outside would starve the rest.
                let used_up = ending.cut == Cut::Slice && handoff.is_none();
                turn.fifo().raise_rank(queued_rank & if used_up { !EXPRESS } else { !0 });
            }
            match handoff {
                Some(node) if turn.fifo().is_urgent() => {
                    // Another color is held for a task that has to be polled in this color before
                    // the waiter gets it. The waiter would delay the task, and perhaps wait for
                    // that other color.
                    turn.fifo().put_back(node);
                    home.queue_turn(turn);
                }
                Some(node) => afterwards.granted.append(home.hand_over(turn, node)),
                None if more && !ending.looked => {
                    home.queue_turn(turn);
                    if ending.cut != Cut::No {
                        home.stay_first();
                    }
                }
                None => {
                    home.make_idle_after(turn);
                    self.end_idle(home, ending.looked, afterwards);
                }
            }
        });
    }

    /// Ends a turn without further work, or after which the worker checks the color's home.
    #[inline(never)]
    fn end_idle(&self, mut home: HomeGuard<'_, &mut RunQueue>, looked: bool, afterwards: &mut Afterwards) {
        let more = home.color().len() > 0;
        if let Some(dead) = home.dead() {
            return afterwards.dead.push(dead);
        }
        let target = if looked { self.partner(&mut home) } else { None };
        let Some((target, mut theirs)) = target else {
            if more {
                // It was idle, so it has no readers.
                _ = home.enqueue();
                home.stay_first();
            }
            return;
        };
        let color = home.color();
        home.come_home(&mut theirs);
        if more {
            afterwards.kick = target;
            HomeGuard::of(&mut *theirs, color).into_iter().for_each(|mut home| _ = home.enqueue());
        }
    }

    /// Moves nodes from other threads to the fifos of their colors.
    fn take_news(&self, queue: &mut RunQueue, afterwards: &mut Afterwards) {
        let mut news = self.slot().take_remote();
        while let Some(notified) = news.pop() {
            notified.with_color(|color, notified| {
                let home = HomeGuard::of(&mut *queue, color);
                let own = home.filter(|home| !switches::shared_queue() || home.state() != State::Running);
                let Some(mut home) = own else {
                    // Its home moved while it was linked here; it is passed on after our lock is
                    // released.
                    return afterwards.strays.push(notified);
                };
                home.take_notified(notified);
                if color.len() > 0 {
                    afterwards.granted.append(home.enqueue());
                } else if let Some(dead) = home.dead() {
                    afterwards.dead.push(dead);
                }
            });
        }
    }

    /// Runs the driver, which posts ready events. If it panics, the panic is reported, and it
    /// counts as having found nothing.
    pub(crate) fn dispatching<R: Default>(&self, run: impl FnOnce() -> R) -> R {
        self.dispatches.set(true);
        let done = foreign::contain(run);
        self.dispatches.set(false);
        done.unwrap_or_default()
    }

    /// Collects kernel events and timers of a worker's slot of the driver.
    pub(crate) fn poll_driver(&self, slot: usize) -> bool {
        if self.shared.is_left_behind() {
            fork::end_worker();
        }
        self.dispatching(|| self.shared.driver.poll(slot))
    }
}

impl Cut {
    #[inline]
    fn slice_if(cut: bool) -> Cut {
        if cut { Cut::Slice } else { Cut::No }
    }
}

/// Runs traffic with other workers, so that a timed turn can compute its cost without it.
pub(crate) fn away<R>(traffic: impl FnOnce() -> R) -> R {
    let timed = context::with_worker(|worker| worker.away_ns.get().is_some()).unwrap_or(false);
    if !timed {
        return traffic();
    }
    let slice = Slice::start(true);
    let done = traffic();
    context::with_worker(|worker| {
        // `None` if a destructor has panicked, or the timed turn is over.
        let before = worker.away_ns.get();
        worker.away_ns.set(before.map(|away_ns| away_ns + slice.elapsed_ns()));
    });
    done
}

/// Callbacks longer than this are timed in every turn: timing costs little then, and a wrong mean,
/// measured while other threads had the core or while colors were apart, is soon corrected.
/// Callbacks of this length may also keep the colors of a set on different workers.
const LONG_CALLBACK_NS: u16 = (REQUEST_POSTS * TINY_CALLBACK_NS) as u16;

/// Shorter callbacks cost less than moving them between cores: about 130 ns, two cache-line
/// transfers.
pub(crate) const TINY_CALLBACK_NS: u32 = 150;
