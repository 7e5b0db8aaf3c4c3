//! A worker's communication with a program's own policy: its reports to the policy, and its
//! questions.
//!
//! The policy belongs to its worker's thread and runs while no lock is held. So it learns of
//! changes late: under the home lock, which thieves and posters take, the run queue keeps a *board*
//! of the changes since the last question. To pick, the worker takes the changes off the board,
//! releases the lock, reports them and asks, and takes the lock again.
//!
//! | list of the run queue | holds | order |
//! |---|---|---|
//! | `UNTOLD` | colors queued since the last report to the policy | by age |
//! | `TOLD` | colors that it knows, each with a slot of the board | by age, all older than the first list |
//!
//! A policy names a color by a key: a slot, and a number that is unique to each wait. So a key is
//! seen to be outdated when its color has left. No answer can do harm: anything but the key of a
//! waiting color means the oldest color.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::Priority;
use crate::color::cell::ColorCell;
use crate::color::rights::{ColorRef, ColorTurn, HomeGuard};
use crate::runtime::panics;
use crate::runtime::shared::Running;
use crate::sync::atomic::Ordering::*;
use crate::worker::Worker;
use crate::worker::policy::{Policy, Runnable, RunnableKey};
use crate::worker::run_queue::{EXPRESS, RunQueue, TOLD};

/// A worker's policy.
pub(crate) struct Policed {
    policy: Box<dyn Policy>,
    news: News,
    /// Counts picks, for the age bound.
    picks: u32,
}

/// Changes to report to a policy before it is asked.
#[derive(Default)]
struct News {
    removed: Vec<RunnableKey>,
    queued: Vec<Runnable>,
    changed: Vec<Runnable>,
}

/// The colors of a run queue that a policy knows, and the changes since; under the home lock.
#[derive(Default)]
pub(crate) struct Board {
    slots: Vec<BoardSlot>,
    free: Vec<u32>,
    next_serial: u64,
    removed: Vec<RunnableKey>,
    /// Slots of colors with more waiting callbacks than the policy knows.
    changed: Vec<u32>,
}

struct BoardSlot {
    /// Null: free.
    color: *mut ColorCell,
    serial: u64,
    /// Whether it is listed in `changed`.
    changed: bool,
}

// SAFETY: the pointers are to colors in the board's run queue, and followed only under its lock.
unsafe impl Send for Board {}

/// A color in the queue that a board belongs to.
pub(super) type PolicedHome<'c, 'q> = HomeGuard<'c, &'q mut RunQueue>;

impl Board {
    /// Gives a color a slot.
    fn enter(&mut self, mut home: PolicedHome<'_, '_>) -> Runnable {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(BoardSlot { color: ptr::null_mut(), serial: 0, changed: false });
            self.slots.len() as u32 - 1
        });
        let serial = self.next_serial;
        self.next_serial += 1;
        self.slots[slot as usize] = BoardSlot { color: home.color().ptr().as_ptr(), serial, changed: false };
        home.fifo().into_iter().for_each(|mut fifo| fifo.set_policy_slot(slot));
        describe(home, RunnableKey { serial, slot })
    }

    /// Frees a slot: its color leaves the queue.
    fn free_slot(&mut self, slot: u32) {
        self.slots[slot as usize].color = ptr::null_mut();
        self.free.push(slot);
    }

    /// Notes that a color leaves the queue without a pick of the policy.
    pub(super) fn forget(&mut self, home: PolicedHome<'_, '_>) {
        if let Some(slot) = slot_of(home) {
            self.removed.push(RunnableKey { serial: self.slots[slot as usize].serial, slot });
            self.free_slot(slot);
        }
    }

    /// Notes a new callback in a queued color.
    pub(super) fn note_change(&mut self, home: PolicedHome<'_, '_>) {
        if let Some(slot) = slot_of(home)
            && !std::mem::replace(&mut self.slots[slot as usize].changed, true)
        {
            self.changed.push(slot);
        }
    }

    /// The color in a slot, if it still waits there; `queue` is the board's.
    fn find<'q>(&self, key: RunnableKey, queue: &'q mut RunQueue) -> Option<PolicedHome<'q, 'q>> {
        let entry = self.slots.get(key.slot as usize).filter(|entry| entry.serial == key.serial)?;
        let color = NonNull::new(entry.color)?;
        // SAFETY: a color with a slot is in this queue, which is its home's, and `&mut` to the
        // queue is the lock.
        Some(unsafe { HomeGuard::new(queue, ColorRef::new(color)) })
    }
}

/// The slot of a queued color, if a policy knows it.
fn slot_of(mut home: PolicedHome<'_, '_>) -> Option<u32> {
    let (_, list) = home.place();
    (list == TOLD).then(|| home.fifo().map(|fifo| fifo.policy_slot())).flatten()
}

/// The description of a queued color for a policy.
fn describe(mut home: PolicedHome<'_, '_>, key: RunnableKey) -> Runnable {
    let color = home.color();
    let rank = home.fifo().map_or(0, |fifo| fifo.rank());
    Runnable {
        key,
        color_id: color.id,
        priority: Priority::new(rank / 2),
        from_outside: rank & EXPRESS != 0,
        queued: color.len() as usize,
        mean_ns: u64::from(color.mean_ns()),
    }
}

impl RunQueue {
    /// Takes the changes to report to the policy.
    fn take_news(&mut self, news: &mut News) {
        let Some(mut board) = self.board.take() else { return };
        std::mem::swap(&mut news.removed, &mut board.removed);
        // Reported before the new ones, in their present state.
        for slot in std::mem::take(&mut board.changed) {
            let entry = &mut board.slots[slot as usize];
            entry.changed = false;
            let key = RunnableKey { serial: entry.serial, slot };
            news.changed.extend(board.find(key, self).map(|home| describe(home, key)));
        }
        while let Some(home) = self.tell_next() {
            news.queued.push(board.enter(home));
        }
        self.board = Some(board);
    }

    /// Begins a turn of the color that the policy has picked, if it waits.
    fn take_picked(&mut self, key: RunnableKey, worker: &Worker) -> Option<ColorTurn> {
        let mut board = self.board.take()?;
        let turn = board.find(key, self).and_then(|mut home| home.begin_turn(worker));
        if turn.is_some() {
            // The policy has forgotten it.
            board.free_slot(key.slot);
        }
        self.board = Some(board);
        turn
    }

    /// Begins a turn of the oldest color; the policy learns of it later.
    fn take_oldest(&mut self, worker: &Worker) -> Option<ColorTurn> {
        self.oldest()?.begin_turn(worker)
    }
}

impl Policed {
    /// Reports the changes, and asks.
    fn ask(&mut self) -> Option<RunnableKey> {
        let News { removed, queued, changed } = &mut self.news;
        removed.drain(..).for_each(|key| self.policy.removed(key));
        queued.drain(..).for_each(|color| self.policy.queued(&color));
        changed.drain(..).for_each(|color| self.policy.changed(&color));
        self.policy.pick()
    }
}

impl Worker {
    /// From now on a policy picks. If it cannot be made, the default stays.
    pub(crate) fn adopt_policy(&self, make: impl FnOnce() -> Box<dyn Policy>) {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(policy) => {
                self.policed.set(Some(Box::new(Policed { policy, news: News::default(), picks: 0 })));
                self.slot().lock().police();
            }
            Err(payload) => self.report_policy(payload),
        }
    }

    /// Runs a turn of the color that the policy picks; false if there is none.
    #[inline]
    pub(super) fn policed_step(&self) -> bool {
        match self.policed.take() {
            Some(policed) => self.step_by(policed),
            None => false,
        }
    }

    #[inline(never)]
    fn step_by(&self, mut policed: Box<Policed>) -> bool {
        let slot = self.slot();
        let mut queue = slot.lock();
        if queue.len() == 0 {
            drop(queue);
            self.policed.set(Some(policed));
            return false;
        }
        policed.picks = policed.picks.wrapping_add(1);
        let mut picked = None;
        if !policed.picks.is_multiple_of(OLDEST_PICK) {
            queue.take_news(&mut policed.news);
            drop(queue);
            let answer = catch_unwind(AssertUnwindSafe(|| policed.ask()));
            let key = match answer {
                Ok(key) => key,
                Err(payload) => {
                    self.policed.set(Some(policed));
                    self.report_policy(payload);
                    self.drop_policy();
                    return true;
                }
            };
            queue = slot.lock();
            picked = key.and_then(|key| queue.take_picked(key, self));
        }
        let next = picked.or_else(|| queue.take_oldest(self));
        if let Some(turn) = &next {
            slot.running.set(Running::Color(turn.color().id));
        }
        let waiting = queue.len();
        drop(queue);
        // Relaxed: a hint for thieves.
        slot.len.store(waiting, Relaxed);
        self.policed.set(Some(policed));
        // `None` if others have taken everything while the policy was asked.
        let Some(turn) = next else { return false };
        self.turn(turn);
        true
    }

    /// Returns to the default, permanently.
    pub(super) fn drop_policy(&self) {
        let Some(policed) = self.policed.take() else { return };
        self.slot().lock().end_policing();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(policed))) {
            self.report_policy(payload);
        }
    }

    fn report_policy(&self, payload: Box<dyn Any + Send>) {
        let message =
            format!("the policy of worker {} is replaced by the default: {}", self.index, panics::message(&*payload));
        panics::discard(payload);
        panics::report(&self.shared, None, Box::new(message));
    }
}

/// At regular intervals a pick takes the oldest color, whatever the policy says.
const OLDEST_PICK: u32 = 32;
