//! Waiting, and the decision to jump; see the table in the module above.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use dapple_sched::Handle;
use dapple_sched::foreign::KeptWaker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Due, PATIENCE, SETTLE_MAX, SETTLE_MIN, Stalled, Standing, State};
use crate::driver::slot::Slot;

/// The outcome of a decision.
enum Verdict {
    /// The clock has jumped. The claim remains: the worker is busy.
    Jumped,
    /// There is no deadline to jump to, or a participant is busy. Wait at most this long.
    Wait(Option<Duration>),
}

impl Standing {
    /// Waits until the slot's epoll has an event or `limit` has passed; or makes the clock jump,
    /// and adds the wakers of the timers that are due then. The caller is the slot's worker and has
    /// set `PARKED`; afterwards the slot is awake, and its worker counts as busy.
    pub(crate) fn wait(&self, slot: &Slot, limit: Option<Duration>, fired: &mut Vec<KeptWaker>) {
        // It has work already, and has not stopped being busy.
        if limit == Some(Duration::ZERO) {
            return self.stay_busy(slot);
        }
        let is_last = {
            let mut state = self.state.lock();
            state.busy -= 1;
            state.busy == 0
        };
        let limit = match if is_last { self.decide(slot, fired) } else { Verdict::Wait(None) } {
            Verdict::Jumped => return self.stay_busy(slot),
            Verdict::Wait(patience) => min(limit, patience),
        };
        await_readable(&[slot], limit);
        let mut state = self.state.lock();
        if slot.leave_parked() {
            state.add_busy();
        }
    }

    /// The worker of the slot counts as busy and stays so. A thread that has unparked it meanwhile
    /// has counted it once more.
    fn stay_busy(&self, slot: &Slot) {
        let mut state = self.state.lock();
        if !slot.leave_parked() {
            state.busy -= 1;
        }
    }

    /// Takes the slot away from `PARKED`, for a thread that unparks it; returns whether it was
    /// parked. The state and the number change in one step, because the worker may be unparked at
    /// once.
    pub(crate) fn notify(&self, slot: &Slot) -> bool {
        let mut state = self.state.lock();
        let was_parked = slot.notify();
        if was_parked {
            state.add_busy();
        }
        was_parked
    }

    fn decide(&self, own: &Slot, fired: &mut Vec<KeptWaker>) -> Verdict {
        let slots: Vec<Arc<Slot>> = self.slots().collect();
        let slots: Vec<&Slot> = slots.iter().map(|slot| &**slot).collect();
        let runtime = Handle::current();
        loop {
            let Some((settle, arrivals)) = self.claim(&slots) else {
                return Verdict::Wait(None);
            };
            let is_readable = await_readable(&slots, Some(settle));
            let mut state = self.state.lock();
            // A participant that came and left meanwhile may have caused an event after the poll.
            let is_alone = state.busy == 1 && state.arrivals == arrivals;
            if !is_readable && is_alone && runtime.all_asleep() {
                return self.jump_or_wait(state, fired);
            }
            state.busy -= 1;
            if state.busy > 0 {
                return Verdict::Wait(None);
            }
            drop(state);
            if await_readable(&[own], Some(Duration::ZERO)) {
                return Verdict::Wait(None);
            }
            // The worker with the event, or the thread that should wake one, was not scheduled yet,
            // or has come and gone. All of this ends soon.
            thread::yield_now();
        }
    }

    /// Step 2. Returns how long to poll the kernel, and how many participants have become busy so
    /// far; `None` if there was no claim to get or it would be useless.
    fn claim(&self, slots: &[&Slot]) -> Option<(Duration, u64)> {
        let mut state = self.state.lock();
        let next = state.next().filter(|_| state.busy == 0)?;
        state.busy = 1;
        // Relaxed: see `note_io`.
        let is_settled = self.io_count.load(Ordering::Relaxed) == state.io_seen;
        let settle = match is_settled || slots.iter().all(|slot| slot.reactor().load() == 0) {
            true => Duration::ZERO,
            false => next.at.saturating_duration_since(self.now()).clamp(SETTLE_MIN, SETTLE_MAX),
        };
        Some((settle, state.arrivals))
    }

    /// Steps 6 and 7.
    fn jump_or_wait(&self, mut state: MutexGuard<'_, State>, fired: &mut Vec<KeptWaker>) -> Verdict {
        let Some(next) = state.next() else {
            state.busy -= 1;
            return Verdict::Wait(None);
        };
        let patience = match self.calls_fingerprint(&state) {
            None => {
                state.stalled = None;
                Duration::ZERO
            }
            Some(fingerprint) => self.make_up(&mut state, fingerprint, next.at),
        };
        if !patience.is_zero() {
            state.busy -= 1;
            return Verdict::Wait(Some(patience));
        }
        self.set(next.at);
        // Relaxed: see `note_io`.
        state.io_seen = self.io_count.load(Ordering::Relaxed);
        while let Some(entry) = state.timers.first_entry()
            && (entry.key().at, entry.key().rank) <= (next.at, next.rank)
        {
            let (due, waker) = entry.remove_entry();
            state.forget(due);
            fired.push(waker);
        }
        Verdict::Jumped
    }

    /// While calls are in progress: how long to wait for them, in real time. Zero if by the real
    /// clock the next deadline would have been reached.
    fn make_up(&self, state: &mut State, fingerprint: u64, next: Instant) -> Duration {
        // REAL: calls of the blocking pool and of the kernel are under way.
        let real = Instant::now();
        let stalled = match &mut state.stalled {
            Some(stalled) if stalled.fingerprint == fingerprint => stalled,
            stalled => stalled.insert(Stalled { since: real, made_up: real + PATIENCE, fingerprint }),
        };
        let patience = PATIENCE.saturating_sub(real - stalled.since);
        if !patience.is_zero() {
            return patience;
        }
        let passed = real.saturating_duration_since(stalled.made_up);
        stalled.made_up = real;
        let left = next.saturating_duration_since(self.now() + passed);
        if !left.is_zero() {
            self.set(self.now() + passed);
        }
        left
    }

    /// The caller holds the lock.
    fn set(&self, now: Instant) {
        let now = now.saturating_duration_since(self.start).as_nanos();
        // Release pairs with `now`. It saturates after 584 years, and never goes back.
        self.now_ns.fetch_max(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// A number that changes when a call begins or ends; `None` if there is no call.
    fn calls_fingerprint(&self, state: &State) -> Option<u64> {
        let ring_calls = self.ring_calls();
        let mut waits = 0;
        let mut events = 0u64;
        for entry in state.awaited_outside() {
            waits += 1;
            events = events.wrapping_add(entry.event_count());
        }
        (state.calls + ring_calls + waits > 0).then_some(state.call_changes.wrapping_add(events))
    }
}

impl State {
    /// The next time to which the clock may jump.
    fn next(&self) -> Option<Due> {
        let first = *self.timers.first_key_value()?.0;
        let may_jump = self.pauses == 0 || self.advances.last().is_some_and(|last| first <= *last);
        may_jump.then_some(first)
    }
}

/// Waits until one of the slots has events, without taking them.
fn await_readable(slots: &[&Slot], limit: Option<Duration>) -> bool {
    let fds = slots.iter().map(|slot| PollFd::from_borrowed_fd(slot.epoll(), PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    // An error: a signal interrupted it, and may have caused an event.
    poll(&mut fds, limit.as_ref()).map_or(true, |count| count > 0)
}

fn min(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
