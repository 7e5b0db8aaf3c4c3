//! A worker without work: polls the kernel, steals, spins briefly, sleeps.

use std::mem;

use crate::color::cell::State;
use crate::color::rights::HomeGuard;
use crate::post::afterwards::Afterwards;
use crate::runtime::shared::{Shared, Slot};
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::sync::spin_loop;
use crate::worker::alarm::SELDOM_NS;
use crate::worker::cores::Busy;
use crate::worker::mark::Help;
use crate::worker::run_queue::RunQueue;
use crate::worker::{TINY_CALLBACK_NS, Worker};

/// A worker that searches for work. The drop ends the search, even if a panic of foreign code
/// passes through the driver.
struct Search<'a>(&'a Shared);

impl Drop for Search<'_> {
    fn drop(&mut self) {
        // Relaxed: a hint that keeps several workers from being woken for the same work.
        self.0.searching.store(0, Relaxed);
    }
}

/// A worker that counts as asleep. Like [`Search`], it ends in a drop: if a worker stayed counted
/// as asleep, C6 would no longer hold.
struct Sleep<'a> {
    worker: &'a Worker,
    /// It counts as resting.
    rests: bool,
    began_ns: u64,
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.worker.end_sleep(self.rests, self.began_ns);
    }
}

impl Worker {
    /// Searches for work for a short while; true if there may be some now.
    pub(super) fn find_work(&self) -> bool {
        let _search = Search(&self.shared);
        self.shared.mark_round(self.index);
        if self.rests() {
            self.poll_driver(self.index);
            return self.hand_over();
        }
        let rounds = self.spin_rounds.get();
        let mut found = self.poll_driver(self.index) || self.poll_shared() || self.steal();
        let mut round = 0;
        while !found && round < rounds && !self.shared.is_stopping() {
            for _ in 0..SPINS_PER_ROUND {
                spin_loop();
            }
            found = self.slot().remote_waits() || self.poll_shared() || self.steal();
            round += 1;
        }
        // The next spin is longer if this one found work, and shorter if it did not.
        if round > 0 {
            self.spin_rounds.set(if found { (rounds * 2).min(SPIN_ROUNDS_MAX) } else { (rounds / 2).max(1) });
        }
        found
    }

    /// Where cores are free, takes events that would wait for another worker.
    fn poll_shared(&self) -> bool {
        self.shared.cores.are_free() && self.dispatching(|| self.shared.driver.poll_shared(self.index))
    }

    /// Sleeps in the driver until there may be work.
    pub(crate) fn sleep(&self) {
        if switches::shared_queue() {
            // The one sleep word cannot tell which worker sleeps.
            return std::thread::yield_now();
        }
        let Some(rests) = self.begin_sleep() else { return };
        let sleep = Sleep { worker: self, rests, began_ns: self.shared.now_ns() };
        self.dispatching(|| {
            if rests {
                self.shared.driver.rest(self.index, self.shared.active());
            }
            self.shared.park(self.index, None);
        });
        drop(sleep);
        if self.rests() {
            self.hand_over();
        }
    }

    /// Counts as asleep from now on, and returns whether this worker rests; `None` if there is
    /// work.
    pub(crate) fn begin_sleep(&self) -> Option<bool> {
        let slot = self.slot();
        let queue = slot.lock();
        // Under the lock: see `rest`.
        let rests = self.rests();
        if queue.turns_waiting() > 0 || self.shared.is_stopping() || !slot.fall_asleep(&queue) {
            return None;
        }
        drop(queue);
        self.shared.fell_asleep(self.wakes_seldom.get(), rests);
        slot.counters.park();
        Some(rests)
    }

    /// Ends what [`Worker::begin_sleep`] began.
    pub(crate) fn end_sleep(&self, rests: bool, slept_from_ns: u64) {
        self.slot().wake_up();
        self.shared.woke_up(rests);
        self.wakes(slept_from_ns);
    }

    /// Steals colors from other workers. True if it took some, or dispatched events of another
    /// worker.
    pub(crate) fn steal(&self) -> bool {
        let workers = self.shared.slots.len();
        if workers == 1 || !switches::stealing() {
            return false;
        }
        let start = self.next_random() as usize % workers;
        let mut saw_waiting = false;
        let found = (0..workers).map(|n| (start + n) % workers).filter(|&victim| victim != self.index).any(|victim| {
            let slot = &self.shared.slots[victim];
            // Relaxed: hints; the locks decide.
            let help = slot.help();
            if help == Help::No && slot.len.load(Relaxed) == 0 {
                return false;
            }
            saw_waiting = true;
            let stolen = self.steal_from(slot, victim);
            // Help for a worker that ends no turn includes its events and timers (C6).
            (help != Help::No && self.poll_driver(victim)) || stolen > 0
        });
        // Relaxed: a hint.
        if found {
            self.shared.futile_searches.store(0, Relaxed);
        } else if saw_waiting {
            self.shared.futile_searches.fetch_add(1, Relaxed);
        }
        found
    }

    fn steal_from(&self, slot: &Slot, victim: usize) -> usize {
        let mut left = Afterwards::new();
        let mut own = self.slot().lock();
        let Some(mut theirs) = slot.try_lock() else { return 0 };
        if own.closed || theirs.closed {
            return 0;
        }
        // Under the lock: the worker's turn may have ended meanwhile. Relaxed: hints, as above.
        let help = slot.help();
        let any = help == Help::All || slot.behind.load(Relaxed);
        let mut stolen = self.steal_colors(&mut own, &mut theirs, help, any);
        stolen += own.light.steal(&mut theirs.light, help != Help::No, any);
        slot.behind.store(false, Relaxed);
        slot.len.store(theirs.turns_waiting(), Relaxed);
        if help == Help::All {
            stolen += self.steal_stretch(&mut own, slot);
        }
        if help != Help::No {
            slot.mark.serve();
            stolen += self.steal_news(&mut own, &mut theirs, victim, help, &mut left);
        }
        slot.counters.stolen_from(stolen);
        drop(theirs);
        drop(own);
        left.settle(&self.shared);
        self.slot().counters.steal(stolen);
        stolen
    }

    /// Moves half of the colors, or all if the worker needs help; `any` colors, or only those that
    /// are worth moving.
    ///
    /// Half means every other one. Colors often queue in the order in which they and their state
    /// were made, so a worker with a contiguous part of them walks through memory in equal steps.
    /// Past its last color the processor prefetches the next one, which the other worker is
    /// writing. With contiguous halves, two workers ran empty callbacks at 1.0 to 1.4 times the
    /// rate of one, at 1.4 to 2 times the CPU per callback. With every other one, the rate was 1.9
    /// to 2.0 times, at 1.03 times the CPU.
    fn steal_colors(&self, own: &mut RunQueue, theirs: &mut RunQueue, help: Help, any: bool) -> usize {
        let all = help != Help::No;
        let wanted = if all { theirs.len() } else { theirs.len().div_ceil(2) };
        let mut looked = 0;
        let mut stolen = 0;
        let mut passed = false;
        theirs.each(|mut home| {
            looked += 1;
            let moves = !home.color().is_pinned() && (any || pays(&mut home));
            // Every other one of those worth moving.
            if moves && (all || !mem::replace(&mut passed, false)) {
                passed = true;
                take_over(home, own, help);
                stolen += 1;
            }
            stolen < wanted && (all || looked < LOOK_AT_MAX)
        });
        stolen
    }

    /// Takes over the colors that are linked to a worker that ends no turn.
    fn steal_news(
        &self,
        own: &mut RunQueue,
        theirs: &mut RunQueue,
        victim: usize,
        help: Help,
        left: &mut Afterwards,
    ) -> usize {
        let mut taken = 0;
        let mut news = self.shared.slots[victim].take_remote();
        while let Some(notified) = news.pop() {
            notified.with_color(|color, notified| {
                let home = HomeGuard::of(&mut *theirs, color);
                // A running color's fifo belongs to its worker: this puts the color back, still
                // notified. Put a pinned one back, too.
                let Some(mut home) = home.filter(|home| !color.is_pinned() && home.state() != State::Running) else {
                    return left.strays.push(notified);
                };
                home.take_notified(notified);
                match home.state() {
                    State::Idle if color.len() > 0 && (help == Help::All || pays(&mut home)) => {
                        take_over(home, own, help);
                        // It was idle, so it has no readers.
                        HomeGuard::of(&mut *own, color).into_iter().for_each(|mut home| _ = home.enqueue());
                        taken += 1;
                    }
                    // Its inbox was drained before. If no handles are left, the color is dead.
                    State::Idle if color.len() == 0 => home.dead().into_iter().for_each(|dead| left.dead.push(dead)),
                    State::Idle | State::Queued | State::Reading => left.granted.append(home.enqueue()),
                    State::Held | State::Running => {}
                }
            });
        }
        taken
    }

    /// Notes that the worker is awake again, and has ended a turn.
    fn wakes(&self, slept_from_ns: u64) {
        let (now_ns, _) = self.shared.come_round(self.index);
        self.busy.set(Busy::since(now_ns));
        let seldom = now_ns.saturating_sub(slept_from_ns) > SELDOM_NS;
        self.wakes_seldom.set(seldom);
        if seldom {
            self.offer_pause.set(0);
            self.offer_pause_last.set(0);
        }
    }

    /// Called between two turns of a worker that has been busy for a while.
    pub(crate) fn comes_round(&self) {
        let (now_ns, put_off) = self.shared.come_round(self.index);
        self.judge_cores(now_ns);
        if put_off {
            self.offer_help();
        }
    }

    /// Wakes a sleeper to find out whether sharing helps, on a worker that always has a waiting
    /// color. It does so less and less often while the woken worker does not stay awake. Called
    /// when the alarm is put off.
    fn offer_help(&self) {
        let shared = &*self.shared;
        // Relaxed: a hint.
        let (slot, waiting) = (self.slot(), self.slot().len.load(Relaxed) as u64);
        let behind = waiting * u64::from(slot.turn_ns.load(Relaxed)) > BEHIND_NS;
        if !behind {
            slot.behind.store(false, Relaxed);
        }
        if shared.sleepers() == 0 || waiting == 0 {
            return self.backlog.set(0);
        }
        if behind {
            slot.behind.store(true, Relaxed);
            shared.kick_any(self.index);
            return;
        }
        self.backlog.set(self.backlog.get() + 1);
        if self.offer_pause.get() > 0 {
            self.offer_pause.set(self.offer_pause.get() - 1);
        } else if self.backlog.get() >= 2 {
            self.offer_pause_last.set((self.offer_pause_last.get() * 2).clamp(1, OFFER_PAUSE_MAX));
            self.offer_pause.set(self.offer_pause_last.get());
            shared.kick_any(self.index);
        }
    }

    /// Wakes a sleeping worker if the waiting work is worth more than the wake-up; less and less
    /// often while woken workers find nothing worth moving.
    #[inline]
    pub(super) fn call_for_help(&self, waiting: usize, tasks: usize) {
        let shared = &*self.shared;
        // Relaxed here and below: hints; an exchange decides which worker is woken.
        if shared.sleepers() == 0 || shared.searching.load(Relaxed) != 0 {
            return;
        }
        let pause = self.help_pause.get();
        if pause > 0 {
            self.help_pause.set(pause - 1);
            return;
        }
        let turn_ns = u64::from(self.slot().turn_ns.load(Relaxed));
        let worth_ns = waiting as u64 * turn_ns + tasks as u64 * u64::from(self.light_ns.get());
        let free = shared.cores.are_free();
        let short_ns = if free { CHEAP_TURN_NS } else { SHORT_TURN_NS };
        if worth_ns > if turn_ns < short_ns { BEHIND_NS } else { WAKE_WORTH_NS } {
            let futile = shared.futile_searches.load(Relaxed).min(HELP_PAUSE_DOUBLINGS_MAX);
            // After a turn as long as that, the next call is not too soon.
            let pause = if free && futile == 0 && turn_ns > WAKE_WORTH_NS { 0 } else { HELP_PAUSE_MIN << futile };
            self.help_pause.set(pause);
            self.wake_helper();
        }
    }

    /// A color was queued here in the middle of a turn, which goes on: if turns are long and a core is free, another
    /// worker takes it now.
    pub(super) fn offer_released(&self, waiting: usize) {
        let shared = &*self.shared;
        let slot = self.slot();
        // Relaxed, all: hints, as in `call_for_help`.
        if waiting == 0 || !shared.cores.are_free() || u64::from(slot.turn_ns.load(Relaxed)) < WAKE_WORTH_NS {
            return;
        }
        slot.len.store(waiting, Relaxed);
        if shared.sleepers() > 0 && shared.searching.load(Relaxed) == 0 {
            self.wake_helper();
        }
    }

    fn wake_helper(&self) {
        let shared = &*self.shared;
        shared.searching.store(1, Relaxed);
        if !shared.kick_any(self.index) {
            shared.searching.store(0, Relaxed);
        }
    }

    fn next_random(&self) -> u32 {
        // xorshift32: it only has to spread thieves over victims.
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random.set(x);
        x
    }
}

/// Moves a color that is idle or queued at another worker to `own`, the queue of this worker.
fn take_over(mut home: HomeGuard<'_, &mut RunQueue>, own: &mut RunQueue, help: Help) {
    if help == Help::All && !pays(&mut home) {
        home.fifo().into_iter().for_each(|mut fifo| fifo.note_rescue());
    }
    home.count_stolen();
    home.move_to(own);
}

/// Whether moving a color that does not run to another core gains more than its traffic between
/// cores costs.
///
/// The time of a color in which only waits of tasks run is not known: the polls of these tasks take it. Where a core is
/// free, such a color moves.
///
/// A color that neither receives from its home nor sends to others can move for free. Afterwards
/// other colors pay for each callback that they receive or send, because it crosses between cores;
/// the work of their callbacks must outweigh that.
fn pays(home: &mut HomeGuard<'_, &mut RunQueue>) -> bool {
    let traffic = home.fifo().map_or(0, |fifo| fifo.traffic());
    let cell = home.color();
    traffic == 0
        || (cell.own_ns() == 0 && cell.shared().cores.are_free())
        || u64::from(cell.own_ns()) * u64::from(cell.ran_recently()) > u64::from(TINY_CALLBACK_NS) * u64::from(traffic)
}

/// Pauses per round of spinning: about a microsecond.
const SPINS_PER_ROUND: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { 32 };

/// The longest spin.
const SPIN_ROUNDS_MAX: u32 = 16;

/// A thief checks this many colors of a victim that needs its lock itself.
const LOOK_AT_MAX: usize = 64;

/// Turns between two calls for help, while help finds work,
const HELP_PAUSE_MIN: u32 = 4;

/// ... and how often that is doubled while it does not.
const HELP_PAUSE_DOUBLINGS_MAX: u32 = 16;

/// Waking a sleeping worker costs about 18 us; it pays off if this much work waits.
const WAKE_WORTH_NS: u64 = 40_000;

/// Moving colors with shorter turns loses a good part of the gain, because they leave their cached
/// data behind. For those, a worker calls for help only if they would wait too long, and otherwise
/// offers them now and then.
const SHORT_TURN_NS: u64 = 20_000;

/// The same where another core is idle: the loss is a few hundred nanoseconds a turn, for a turn on that core.
const CHEAP_TURN_NS: u64 = 2_000;

/// If a queue takes longer than this, its last color waits too long (C6).
const BEHIND_NS: u64 = 850_000;

/// The longest pause between two offers of help, counted in rounds of the alarm (some 30 ms).
const OFFER_PAUSE_MAX: u32 = 64;
