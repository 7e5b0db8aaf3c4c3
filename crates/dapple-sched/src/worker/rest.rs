//! Workers that come and go with the processors that the process may use.
//!
//! The runtime has as many workers as when it was built. Of these the first `active` work, and the others *rest*; the monitor sets
//! the number, once a second at most and only while some worker is awake. A worker that rests is an ordinary one in every protocol. It
//! just does not look for work, and gives away what comes to it:
//!
//! | worker | what it does | next |
//! |---|---|---|
//! | works | as all do | the number falls: rests |
//! | rests, awake | between turns, when it looks at the kernel, it hands its colors and light tasks over to a worker that works, but those that are pinned; it neither steals nor spins; it gives the duty of waiting for events away | nothing waits here: sleeps |
//! | rests, asleep | counts as asleep, but not as one that could help: it is not woken to look for work, and C6 does not ask for it | a post to a color at home here, a timer, an event of a descriptor that only its workers wait for: awake. The number rises: works |
//!
//! So each color that is at home here wakes the worker once, and is at home elsewhere then. Colors that are pinned here run here, as
//! they can nowhere else; holds, readers and sets are as anywhere, since a color changes its home only from the run queue.
//!
//! Handing over is stealing the other way round: it needs the locks of both workers, of which the second is only tried. Where that
//! fails, the worker runs a turn itself, and tries again. A worker reads the number under its lock before it sleeps, and a change
//! of the number takes that lock before it wakes the worker: so none sleeps as the other kind.
//!
//! The worker's thread and its memory stay, and its slot of the driver too: timers that were set there still wake it once each. And the
//! number never exceeds that of the workers which were built.

use crate::post::afterwards::Afterwards;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::worker::Worker;
use crate::worker::run_queue::RunQueue;

impl Shared {
    /// The number of workers that work, at least 1: the first ones.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        // Relaxed: a hint, but where a worker is about to sleep, which reads it under its lock.
        self.cpus.as_ref().map_or(self.slots.len(), |cpus| cpus.active.load(Relaxed))
    }

    /// From now on so many workers work, at least 1. Called by one thread, the monitor.
    pub(crate) fn set_active(&self, active: usize) {
        let Some(cpus) = &self.cpus else { return };
        let active = active.clamp(1, self.slots.len());
        let before = cpus.active.swap(active, Relaxed);
        for worker in before.min(active)..before.max(active) {
            // It reads the number under its lock before it sleeps: either it comes after us and sees the new one, or its SLEEPING is there
            // for the kick.
            drop(self.slots[worker].lock());
            self.kick(worker);
        }
    }

    /// Looks how many processors there are now, if it is time to; the monitor does.
    pub(super) fn follow_cpus(&self) {
        let now_ns = self.now_ns();
        if let Some(cpus) = self.cpus.as_ref().filter(|cpus| cpus.is_due(now_ns)) {
            self.set_active(cpus.look(now_ns));
        }
    }
}

impl Worker {
    /// Whether this worker rests.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        self.shared.cpus.is_some() && self.index >= self.shared.active()
    }

    /// Gives what waits here to a worker that works. True: something is left, as it is pinned or the other worker's lock is not free.
    #[cold]
    pub(super) fn hand_over(&self) -> bool {
        let slot = self.slot();
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        self.end_last_turn(&mut queue, &mut afterwards);
        if slot.remote_waits() {
            self.take_news(&mut queue, &mut afterwards);
        }
        self.end_stretch(&mut queue);
        let target = if queue.turns_waiting() > 0 { self.give_away(&mut queue) } else { None };
        let left = queue.turns_waiting();
        // Relaxed: a hint for thieves.
        slot.len.store(left, Relaxed);
        drop(queue);
        if !afterwards.is_empty() {
            afterwards.settle(&self.shared);
        }
        if let Some(target) = target {
            self.shared.kick(target);
        }
        left > 0
    }

    /// Moves all that is not pinned to the worker with the shortest queue; `None` if nothing was moved.
    fn give_away(&self, queue: &mut RunQueue) -> Option<usize> {
        let slots = &self.shared.slots;
        let working = 0..self.shared.active().min(self.index);
        // Relaxed: a hint.
        let target = working.min_by_key(|&worker| slots[worker].len.load(Relaxed))?;
        // Only tried, as everywhere where one is held already.
        let mut theirs = slots[target].try_lock().filter(|theirs| !theirs.closed)?;
        let mut moved = theirs.light.steal(&mut queue.light, true, true);
        queue.each(|home| {
            if !home.color().is_pinned() {
                home.come_home(&mut theirs);
                moved += 1;
            }
            true
        });
        slots[target].len.store(theirs.turns_waiting(), Relaxed);
        (moved > 0).then_some(target)
    }
}
