//! One turn of a color: how many of its callbacks run, which of them are timed, and how it ends.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::{Cut, Ending, LONG_CALLBACK_NS, TINY_CALLBACK_NS, Worker, alarm, clock};
use crate::color::cell::ColorCell;
use crate::color::node::OwnedNode;
use crate::color::rights::{ColorRef, ColorTurn, FifoGuard};
use crate::environment::measured_now;
use crate::observe::trace;
use crate::sync::atomic::Ordering::*;
use crate::worker::clock::{Slice, until_look};

impl Worker {
    /// Runs a turn. A panic of a callback passes through.
    #[inline(always)]
    pub(super) fn turn(&self, mut turn: ColorTurn) {
        let cell = turn.color();
        let (batch, mean_ns) = (cell.len(), cell.mean_ns());
        let short = if mean_ns < clock::TINY_NS { SHORT_TURN_TINY } else { SHORT_TURN };
        let short = batch <= short && self.wary.get() == 0 && (1..LONG_CALLBACK_NS).contains(&mean_ns);
        if short && self.turns_to_look.get() == 0 {
            self.glance(&turn.fifo());
        }
        let to_look = self.turns_to_look.get();
        let posts_out = turn.fifo().posts_out();
        let cell = turn.color();
        self.began.set(cell.ran());
        let plain = !trace::is_on() && !cell.ext.is_limited();
        if !plain {
            trace::begin_turn();
        }
        let open = OpenTurn { worker: self, color: cell.ptr() };
        self.frame.enter(turn, plain);
        if short && to_look > 0 {
            let ran = open.run_few(batch, mean_ns, posts_out);
            self.turns_to_look.set(to_look.saturating_sub(ran));
            // 0: it has reached a waiter, or was released.
            if ran >= batch && self.stop.get() != 0 {
                self.slot().counters.turn(ran);
                self.ended.set(self.frame.leave());
            } else {
                // It has not used up its time slice.
                self.conclude(open, if ran < batch { Cut::Early } else { Cut::No }, false);
            }
        } else {
            let ran = open.run_many(batch, mean_ns);
            self.conclude(open, Cut::slice_if(ran < batch), to_look == 0);
        }
        // A callback may have counted its time.
        self.poll_if_due();
    }

    /// Makes up for the end of a turn that a panic has skipped.
    pub(super) fn end_unwound(&self, color: NonNull<ColorCell>) {
        let open = OpenTurn { worker: self, color };
        open.age_history(self.began.get());
        self.conclude(open, Cut::Early, false);
    }

    /// Ends a turn; the next step requeues its color.
    fn conclude(&self, open: OpenTurn<'_>, cut: Cut, looked: bool) {
        self.slot().counters.turn(open.ran());
        self.blocks.trim();
        if let Some(turn) = self.frame.leave() {
            self.ended.set(Some(turn));
            self.ending.set(Some(Ending { cut, looked }));
        }
    }

    /// Replaces the timed turn of a color with short callbacks and no traffic with other workers:
    /// it takes one clock reading; a sample takes two, and checks the color's home.
    #[cold]
    fn glance(&self, fifo: &FifoGuard<'_>) {
        self.blocks.trim();
        let glances = self.glances.get();
        if glances == 0 || !fifo.is_alone() || cfg!(any(dapple_loom, dapple_shuttle)) {
            self.glances.set(GLANCES);
            return;
        }
        let passed_ns = self.passed_ns(Some(measured_now())).unwrap_or_default();
        self.ns_to_poll.set(self.ns_to_poll.get().saturating_sub(passed_ns));
        if passed_ns > LOOK_EVERY_NS.into() {
            // Longer than short callbacks take: the running callbacks are timed.
            return self.glances.set(GLANCES);
        }
        self.glances.set(glances - 1);
        self.turns_to_look.set(GLANCE_EVERY);
    }

    /// The time since the last clock reading for this, so that no time counts twice.
    fn passed_ns(&self, now: Option<Instant>) -> Option<u64> {
        let (now, before) = now.zip(self.looked_at.replace(now))?;
        // A model has no clock.
        let model = cfg!(any(dapple_loom, dapple_shuttle)).then_some(self.tuning.poll_every_ns / MODEL_LOOKS_TO_POLL);
        Some(model.unwrap_or_else(|| now.saturating_duration_since(before).as_nanos() as u64))
    }

    /// Called now and then: records the time of a turn, without its traffic with other workers. It
    /// sets how often turns are timed.
    fn look(&self, turn_ns: u64, away_ns: u64) {
        let slot = self.slot();
        // Relaxed: a hint for others; only this worker writes it.
        let old = slot.turn_ns.load(Relaxed);
        let sample = turn_ns.saturating_sub(away_ns).min(u64::from(u32::MAX / 8)) as u32;
        let mean = clock::smooth(old, sample);
        slot.turn_ns.store(mean, Relaxed);
        // Two clock readings cost 50 ns: seldom for short turns, often for long ones.
        let turns = (LOOK_EVERY_NS / mean.max(1)).clamp(TURNS_BETWEEN_LOOKS_MIN, TURNS_BETWEEN_LOOKS_MAX);
        self.turns_to_look.set(turns - 1);
    }

    /// Runs one callback.
    ///
    /// # Safety
    /// The node comes from the fifo of the color, which this worker runs.
    #[inline]
    pub(super) unsafe fn run_node(&self, color: ColorRef<'_>, node: OwnedNode) {
        // SAFETY: promised by the caller.
        unsafe {
            let Some(origin) = node.plain_origin() else { return self.run_marked(color, node) };
            self.slot().set_origin(origin);
            node.run(self);
        }
    }

    /// Runs one callback that is traced, or counted against a capacity.
    ///
    /// # Safety
    /// As [`Worker::run_node`].
    #[cold]
    unsafe fn run_marked(&self, color: ColorRef<'_>, node: OwnedNode) {
        if node.counted() {
            color.count_off();
        }
        let record = trace::take_from(&node);
        if let Ok(origin) = node.origin() {
            self.slot().set_origin(origin);
        }
        // SAFETY: promised by the caller.
        let run = || unsafe { node.run(self) };
        match record {
            Some(record) => self.run_traced(Some(color), &record, run),
            None => run(),
        }
    }

    /// Notes traffic of this worker's current callback with other colors; see
    /// [`FifoGuard::note_traffic`]. False if there is no callback, or its turn was released.
    #[inline]
    pub(crate) fn note_turn(&self, posts: u16, elsewhere: Option<usize>) -> bool {
        let open = self.frame.color().map(|color| OpenTurn { worker: self, color });
        open.as_ref().and_then(OpenTurn::fifo).map(|mut fifo| fifo.note_traffic(posts, elsewhere)).is_some()
    }

    /// Ends the current turn after this callback.
    pub(crate) fn interrupt(&self) {
        self.stop.set(0);
    }
}

/// The turn of a worker's own frame. The turn may be released while the frame is open, before its
/// callback ends; the color may be freed then.
#[derive(Clone, Copy)]
struct OpenTurn<'w> {
    worker: &'w Worker,
    color: NonNull<ColorCell>,
}

impl OpenTurn<'_> {
    /// The color, unless the turn was released.
    #[inline]
    fn color(&self) -> Option<ColorRef<'_>> {
        let open = self.worker.frame.color() == Some(self.color);
        // SAFETY: the frame has the turn, which keeps the cell alive.
        open.then(|| unsafe { ColorRef::new(self.color) })
    }

    /// The fifo, unless the turn was released.
    #[inline]
    fn fifo(&self) -> Option<FifoGuard<'_>> {
        // SAFETY: the frame has the turn, which owns the fifo.
        self.color().map(|color| unsafe { FifoGuard::new(color) })
    }

    /// Number of callbacks that the turn has run.
    #[inline]
    fn ran(&self) -> u32 {
        let worker = self.worker;
        self.color().map_or(worker.ran.get(), |color| color.ran().saturating_sub(worker.began.get()) as u32)
    }

    /// Ages the counters of the recent past; see [`FifoGuard::age_history`].
    #[inline]
    fn age_history(&self, before: u64) {
        if let Some(mut fifo) = self.fifo() {
            fifo.age_history(before);
        }
    }

    /// The fifo of a turn that continues.
    ///
    /// # Safety
    /// The turn was not released: a release sets [`Worker::stop`] to 0.
    #[inline]
    unsafe fn own_fifo(&self) -> FifoGuard<'_> {
        // SAFETY: promised by the caller; the frame has the turn, which keeps the cell alive and
        // owns the fifo.
        unsafe { FifoGuard::new(ColorRef::new(self.color)) }
    }

    /// Runs the oldest callback, as callback number `number`. False if there is none.
    ///
    /// # Safety
    /// As [`OpenTurn::own_fifo`].
    #[inline]
    unsafe fn run_next(&self, number: u64) -> bool {
        // SAFETY: promised by the caller; the node comes from the fifo of the color, which this
        // worker runs.
        unsafe {
            let Some(node) = self.own_fifo().take_for_run(number) else { return false };
            self.worker.run_node(ColorRef::new(self.color), node);
        }
        true
    }

    /// Runs a few callbacks that are known to be short: those that were queued when the turn began,
    /// and if they are tiny, those that the color posts to itself meanwhile, up to [`SHORT_TURN`]
    /// in all. The end of a turn costs as much as a callback.
    ///
    /// A color that posts to others lets them run first, as does a task that yields; and any color
    /// lets work from outside run first. `posts_out`: [`FifoGuard::posts_out`] when the turn
    /// begins. Returns the number of callbacks run.
    #[inline]
    fn run_few(self, batch: u32, mean_ns: u16, posts_out: u16) -> u32 {
        let worker = self.worker;
        let most = if worker.goes_on.get() && u32::from(mean_ns) < TINY_CALLBACK_NS { SHORT_TURN } else { batch };
        // A saturated counter says nothing.
        let most = if posts_out == u16::MAX { batch } else { most };
        let began = worker.began.get();
        worker.stop.set(began + u64::from(batch));
        let mut ran = began;
        // SAFETY: the turn has just begun, and the loop ends if it was released; so below.
        while unsafe { self.run_next(ran + 1) } {
            ran += 1;
            if ran < worker.stop.get() {
                continue;
            }
            if worker.stop.get() == 0 {
                self.age_history(began);
                return self.ran();
            }
            // SAFETY: as above.
            let fifo = unsafe { self.own_fifo() };
            if ran - began >= u64::from(most)
                || worker.slot().remote_waits()
                || !(fifo.posts_out() == posts_out && fifo.has_plain_next())
            {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { self.own_fifo() }.age_history(began);
        (ran - began) as u32
    }

    /// Runs a turn of several callbacks, or one that is timed: now and then, and always if
    /// callbacks are long or unknown. Returns the number of callbacks run.
    fn run_many(self, batch: u32, mean_ns: u16) -> u32 {
        let worker = self.worker;
        let to_look = worker.turns_to_look.get();
        let wary = worker.wary.get();
        let timed = to_look == 0 || wary > 0 || !(1..LONG_CALLBACK_NS).contains(&mean_ns);
        let slice = Slice::start(timed);
        worker.away_ns.set(timed.then_some(0));
        let away_before = self.fifo().map_or(0, |fifo| fifo.posts_away());
        self.run_callbacks(batch, &slice);
        worker.turns_to_look.set(to_look.saturating_sub(1));
        let ran = self.ran();
        if !slice.is_timed() {
            return ran;
        }
        let elapsed_ns = slice.elapsed_ns();
        let surprises = elapsed_ns > u64::from(mean_ns) * u64::from(ran) * SURPRISE + SURPRISE_MIN_NS;
        worker.wary.set(if surprises && mean_ns > 0 { WARY_CALLBACKS } else { wary.saturating_sub(ran) });
        let mut away_ns = worker.away_ns.take().unwrap_or_default();
        if timed && let Some(mut fifo) = self.fifo() {
            // A post to another worker costs more than its measured time, because its block comes
            // back from there with cold caches.
            away_ns += u64::from(fifo.posts_away().saturating_sub(away_before)) * COLD_BLOCK_NS;
            let mean_ns = elapsed_ns / u64::from(ran.max(1));
            let away_share = away_ns.min(elapsed_ns) * u64::from(u8::MAX) / elapsed_ns.max(1);
            fifo.record_time(mean_ns, away_share as u8);
        }
        if elapsed_ns > alarm::LONG_NS {
            worker.shared.be_wary();
        }
        if to_look == 0 {
            worker.look(elapsed_ns, away_ns);
        }
        let ended = slice.started().map(|started| started + Duration::from_nanos(elapsed_ns));
        let passed_ns = worker.passed_ns(ended).unwrap_or(elapsed_ns);
        worker.ns_to_poll.set(worker.ns_to_poll.get().saturating_sub(passed_ns));
        ran
    }

    /// Runs up to `batch` callbacks. A panic passes through.
    fn run_callbacks(self, batch: u32, slice: &Slice) {
        let worker = self.worker;
        let mut before = worker.began.get();
        let end = before + u64::from(batch);
        let next_look = |ran: u64| {
            let mean_ns = if worker.wary.get() > 0 { 0 } else { self.color().map_or(0, |color| color.mean_ns()) };
            end.min(ran + u64::from(until_look(mean_ns)))
        };
        worker.stop.set(next_look(before));
        let mut ran = before;
        // SAFETY: as in `run_few`.
        while unsafe { self.run_next(ran + 1) } {
            ran += 1;
            if ran < worker.stop.get() {
                continue;
            }
            if worker.stop.get() == 0 || ran == end || slice.is_over(worker.tuning.slice_ns) {
                break;
            }
            self.age_history(before);
            worker.blocks.trim();
            before = ran;
            worker.stop.set(next_look(ran));
        }
        self.age_history(before);
    }
}

/// The cost of a post to another worker that its poster pays later, in nanoseconds.
const COLD_BLOCK_NS: u64 = 100;

/// In a model, a worker polls the kernel after timing this many turns.
const MODEL_LOOKS_TO_POLL: u64 = 16;

/// At least one in this many turns is timed.
const TURNS_BETWEEN_LOOKS_MAX: u32 = 64;
const TURNS_BETWEEN_LOOKS_MIN: u32 = 4;

/// Callbacks from one glance to the next.
const GLANCE_EVERY: u32 = 128;

/// Cheap checks between two samples, while they find nothing unusual.
const GLANCES: u32 = 7;

/// If a turn takes this many times its expected time, plus this much, this many of the next
/// callbacks are timed one by one.
const SURPRISE: u64 = 10;
const SURPRISE_MIN_NS: u64 = 50_000;
const WARY_CALLBACKS: u32 = 256;

/// Turns are timed about this often.
const LOOK_EVERY_NS: u32 = 32_000;

/// A turn of at most this many short callbacks never reads the clock,
const SHORT_TURN: u32 = 8;

/// nor does one of at most this many that are hardly longer than a reading.
const SHORT_TURN_TINY: u32 = 64;
