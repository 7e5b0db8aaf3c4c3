//! Workers that come and go with the processors that the process may use.
//!
//! The runtime keeps the workers that it was built with. The first `active` of them work, and the
//! others *rest*; the monitor sets the number, once a second at most and only while some worker is
//! awake. A resting worker is an ordinary one in every protocol, but it does not search for work,
//! and gives its work away:
//!
//! | worker | behavior | next |
//! |---|---|---|
//! | works | ordinary | the number falls: rests |
//! | rests, awake | between turns, when it polls the kernel, it hands its colors and light tasks over to a working worker, except pinned ones; it neither steals nor spins; it gives up the duty of waiting for events | nothing waits here: sleeps |
//! | rests, asleep | counts as asleep, but not as a helper: no worker wakes it to search for work, and C6 does not require it | if a post to a color at home here, a timer, or an event of a descriptor that only its workers wait for wakes it: awake The number rises: works |
//!
//! So each color at home here wakes the worker at most once, and has another home afterwards.
//! Colors pinned here still run here, because they can run nowhere else. Holds, readers and sets
//! work as on any worker, because a color changes its home only from the run queue.
//!
//! Handing over is stealing in the other direction: it needs the locks of both workers, of which
//! the second is only tried. If that fails, the worker runs a turn itself, and tries again. A
//! worker reads the number under its lock before it sleeps, and a change of the number takes that
//! lock before it wakes the worker: so each sleeper knows whether it rests.
//!
//! The worker's thread and memory stay, and so does its slot of the driver: timers that were set
//! there still wake it once each. The number never exceeds the number of workers built.

use crate::post::afterwards::Afterwards;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::worker::Worker;
use crate::worker::run_queue::RunQueue;

impl Shared {
    /// The number of workers in use, at least 1: the first ones.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        // Relaxed: a hint, except for a worker that is about to sleep, which reads it under its
        // lock.
        self.cpus.as_ref().map_or(self.slots.len(), |cpus| cpus.active.load(Relaxed))
    }

    /// Sets the number of workers in use, at least 1. Only the monitor's thread calls this.
    pub(crate) fn set_active(&self, active: usize) {
        let Some(cpus) = &self.cpus else { return };
        let active = active.clamp(1, self.slots.len());
        let before = cpus.active.swap(active, Relaxed);
        for worker in before.min(active)..before.max(active) {
            // The worker reads the number under its lock before it sleeps. Either that comes after
            // this change and sees the new number, or the worker's SLEEPING is there for the kick.
            drop(self.slots[worker].lock());
            self.kick(worker);
        }
    }

    /// Counts the processors, if it is due. The monitor calls this.
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

    /// Gives waiting work to a working worker. True if something is left, because it is pinned or
    /// the other worker's lock is taken.
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

    /// Moves everything that is not pinned to the worker with the shortest queue; `None` if nothing
    /// was moved.
    fn give_away(&self, queue: &mut RunQueue) -> Option<usize> {
        let slots = &self.shared.slots;
        let working = 0..self.shared.active().min(self.index);
        // Relaxed: a hint.
        let target = working.min_by_key(|&worker| slots[worker].len.load(Relaxed))?;
        // Only tried, as always while another lock is held.
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
