//! The timers of one worker: its wheel, the wheel's lock, and the owner, which is told when the
//! next timer is due.
//!
//! Queues have numbers and are never freed, so that a timer's handle names its queue in 14 bits,
//! without counting references. A queue of an earlier runtime's worker is used again:
//!
//! | state | `is_open` | `has_owner` | next |
//! |---|---|---|---|
//! | free | no | no | open (`Lease::new`) |
//! | open | yes | yes | closed (`Lease::close`, at shutdown) |
//! | closed | no | yes | left (its slot goes) |
//! | left | no | no | free, when the last timer was removed |
//!
//! Only the owner arms timers, or a thread that holds the slot, and so the lease.
//!
//! The lock is held for some dozen instructions, or for a few of the due timers. If another worker
//! drops a timer while the lock is held, it *marks* the timer: the timer's number goes on a list,
//! and the next thread that checks for due timers removes it. So canceling never waits for a lock.
//!
//! Under a standing clock the wheel stays empty, and a place holds the number of the clock's timer.

use std::io;
use std::sync::Weak;
use std::task::{RawWakerVTable, Waker};

use dapple_sched::environment::HashMap;
use dapple_sched::foreign::KeptWaker;

use super::clock::{self, Clock};
use super::slot::Slot;
use super::standing::{Rank, Standing};
use super::wheel::{CHUNK, Wheel, tick_of};
use crate::lock::{Brief, BriefGuard};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(dapple_loom)]
#[path = "timers/model_numbers.rs"]
mod numbers;
#[cfg(not(dapple_loom))]
mod numbers;
#[cfg(dapple_loom)]
pub(crate) use numbers::end as end_of_model;

/// See the module's text.
#[repr(align(64))]
pub(crate) struct Queue {
    number: u16,
    state: Brief<State>,
    /// No timer needs attention before this tick; `u64::MAX` without timers. Written under the lock
    /// of `state`.
    next_tick: AtomicU64,
    /// Whether there are marks. Written under the lock of `marks`.
    has_marks: AtomicBool,
    /// Timers to be removed; `None` unless the queue is open.
    marks: Mutex<Option<Vec<u32>>>,
    /// The slot to wake for a timer that is due earlier than all others.
    owner: Mutex<Weak<Slot>>,
}

struct State {
    wheel: Wheel,
    is_open: bool,
    has_owner: bool,
    /// Present if the clock can stand still.
    standing: Option<Stood>,
}

/// Timers of a standing clock, by their places here.
#[derive(Default)]
struct Stood {
    timers: HashMap<u32, StoodTimer>,
    next: u32,
}

/// Its number with the clock, and its deadline.
#[derive(Clone, Copy)]
struct StoodTimer {
    number: u64,
    deadline: u64,
}

/// The answer of a timer to a poll.
pub(crate) enum Answer {
    /// It will wake the poller.
    Pending,
    /// It has fired, and was removed. Holds the queue's part of its deadline.
    Fired(u64),
    /// Its runtime has shut down, and it was removed. Holds the queue's part of its deadline.
    Closed(u64),
}

impl Queue {
    fn new(number: u16) -> Queue {
        Queue {
            number,
            state: Brief::new(State { wheel: Wheel::new(0), is_open: false, has_owner: false, standing: None }),
            next_tick: AtomicU64::new(u64::MAX),
            has_marks: AtomicBool::new(false),
            marks: Mutex::new(None),
            owner: Mutex::new(Weak::new()),
        }
    }

    /// The queue with this number; a lease or a timer of it exists.
    pub(crate) fn numbered(number: u16) -> &'static Queue {
        numbers::find(number)
    }

    /// The name of this queue for [`Queue::numbered`].
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Arms a timer; `None` after shutdown. Also returns whether the owner has to check earlier
    /// than planned.
    ///
    /// # Panics
    ///
    /// When 2^30 timers are armed here.
    #[inline]
    pub(crate) fn arm(&self, deadline: u64, waker: KeptWaker) -> Option<(u32, bool)> {
        let mut state = self.state.lock();
        if !state.is_open {
            drop(state);
            return None;
        }
        if state.standing.is_some() {
            drop(state);
            return self.arm_standing(deadline, waker).map(|index| (index, false));
        }
        let index = state.wheel.insert(deadline, waker).expect("a worker has less than 2^30 timers");
        Some((index, self.note_deadline(deadline)))
    }

    #[cold]
    fn arm_standing(&self, deadline: u64, waker: KeptWaker) -> Option<u32> {
        let number = self.with_clock(|clock| clock.arm(clock::instant(deadline), Rank::Timer, waker))??;
        let mut state = self.state.lock();
        let stood = state.standing.as_mut()?;
        while stood.timers.contains_key(&stood.next) {
            stood.next = (stood.next + 1) % PLACES_MAX;
        }
        let place = stood.next;
        stood.next = (place + 1) % PLACES_MAX;
        stood.timers.insert(place, StoodTimer { number, deadline });
        Some(place)
    }

    /// Polls a timer of a standing clock. `None` if the wheel holds that timer.
    fn poll_standing(&self, index: u32, waker: &Waker) -> Option<Answer> {
        let state = self.state.lock();
        let timer = *state.standing.as_ref()?.timers.get(&index)?;
        if !state.is_open {
            self.remove(index, state);
            return Some(Answer::Closed(timer.deadline));
        }
        drop(state);
        let waker = KeptWaker::from(waker);
        let asked = self.with_clock(|clock| (clock.rewire(timer.number, waker), clock.now()));
        if let Some((true, _)) = asked {
            return Some(Answer::Pending);
        }
        self.remove(index, self.state.lock());
        // In the middle of a shutdown the clock has dropped its timers already.
        let has_passed = asked.is_some_and(|(_, now)| clock::nanos(now) >= timer.deadline);
        Some(if has_passed { Answer::Fired(timer.deadline) } else { Answer::Closed(timer.deadline) })
    }

    /// Moves a timer of a standing clock.
    fn reset_standing(&self, index: u32, deadline: u64) -> Option<bool> {
        let number = self.state.lock().standing.as_ref()?.timers.get(&index)?.number;
        let moved = self.with_clock(|clock| clock.reset(number, clock::instant(deadline))) == Some(true);
        let mut state = self.state.lock();
        if !moved {
            self.remove(index, state);
        } else if let Some(timer) = state.standing.as_mut().and_then(|stood| stood.timers.get_mut(&index)) {
            timer.deadline = deadline;
        }
        Some(moved)
    }

    /// The standing clock, if the runtime still exists.
    fn with_clock<R>(&self, f: impl FnOnce(&Standing) -> R) -> Option<R> {
        let owner = self.owner.lock().upgrade()?;
        owner.shared().standing.as_ref().map(f)
    }

    /// Polls a timer, which will wake `waker` from now on.
    #[inline]
    pub(crate) fn poll(&self, index: u32, waker: &Waker) -> Answer {
        let mut state = self.state.lock();
        if state.standing.is_some() {
            drop(state);
            return self.poll_standing(index, waker).expect("a place is kept until it is given back");
        }
        if !state.is_open {
            let deadline = state.wheel.deadline(index);
            self.remove(index, state);
            return Answer::Closed(deadline);
        }
        if state.wheel.will_wake(index, waker) {
            Answer::Pending
        } else if state.wheel.is_armed(index) {
            drop(state);
            self.rewire(index, waker)
        } else {
            let deadline = state.wheel.deadline(index);
            self.remove(index, state);
            Answer::Fired(deadline)
        }
    }

    /// Continues `poll` for another waker, which is cloned without the lock.
    #[cold]
    fn rewire(&self, index: u32, waker: &Waker) -> Answer {
        let waker = KeptWaker::from(waker);
        let mut state = self.state.lock();
        let deadline = state.wheel.deadline(index);
        match (state.is_open, state.wheel.is_armed(index)) {
            (true, true) => {
                let leftover = state.wheel.rewire(index, waker);
                drop(state);
                drop(leftover);
                Answer::Pending
            }
            (is_open, _) => {
                self.remove(index, state);
                if is_open { Answer::Fired(deadline) } else { Answer::Closed(deadline) }
            }
        }
    }

    /// Moves the deadline of a timer. `false` if the timer has fired; then it was removed.
    #[inline]
    pub(crate) fn reset(&self, index: u32, deadline: u64) -> bool {
        let mut state = self.state.lock();
        if state.standing.is_some() {
            drop(state);
            return self.reset_standing(index, deadline).unwrap_or(false);
        }
        if !state.wheel.is_armed(index) {
            self.remove(index, state);
            return false;
        }
        state.wheel.reset(index, deadline);
        let is_first = self.note_deadline(deadline);
        drop(state);
        if is_first {
            self.tell_owner();
        }
        true
    }

    /// The deadline of a timer, without the bits that its handle has.
    pub(crate) fn deadline(&self, index: u32) -> u64 {
        let mut state = self.state.lock();
        match &state.standing {
            Some(stood) => stood.timers.get(&index).map_or(0, |timer| timer.deadline),
            None => state.wheel.deadline(index),
        }
    }

    /// Timers that were not removed.
    #[cfg(dapple_loom)]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().wheel.len()
    }

    /// Ends a timer.
    #[inline]
    pub(crate) fn disarm(&self, index: u32) {
        match self.state.try_lock() {
            Some(state) => self.remove(index, state),
            None => self.disarm_later(index),
        }
    }

    #[cold]
    fn disarm_later(&self, index: u32) {
        let mut marks = self.marks.lock();
        if let Some(list) = &mut *marks {
            list.push(index);
            // Relaxed: a thread that misses it reads it again, because of the exchange in `unpark`.
            self.has_marks.store(true, Ordering::Relaxed);
            drop(marks);
            self.tell_owner();
        } else {
            drop(marks);
            // No thread reads the marks any more, and none holds the lock for long.
            self.remove(index, self.state.lock());
        }
    }

    fn remove(&self, index: u32, mut state: BriefGuard<'_, State>) {
        if let Some(stood) = &mut state.standing {
            let timer = stood.timers.remove(&index);
            let is_free = state.is_free();
            drop(state);
            if let Some(timer) = timer {
                self.with_clock(|clock| clock.disarm(timer.number));
            }
            if is_free {
                self.give_back();
            }
            return;
        }
        let leftover = state.wheel.remove(index);
        let is_free = state.is_free();
        drop(state);
        drop(leftover);
        if is_free {
            self.give_back();
        }
    }

    /// No timer needs attention before this tick; `u64::MAX` without timers.
    pub(crate) fn next_tick(&self) -> u64 {
        // Relaxed: it is an estimate, and due timers are found under the lock. The exchange on
        // `parking` announces a timer that another thread has armed since (see `Slot::unpark`).
        self.next_tick.load(Ordering::Relaxed)
    }

    /// Visits the wakers of timers that have not fired, except those of a standing clock. Takes no
    /// lock during a visit, so some may have fired by then.
    pub(super) fn each_waker(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const ())) {
        for chunk in 0.. {
            let mut wakers = Vec::with_capacity(CHUNK);
            let more = self.state.lock().wheel.wakers_of(chunk, &mut wakers);
            wakers.into_iter().for_each(|(table, data)| visit(table, data));
            if !more {
                break;
            }
        }
    }

    /// Collects the wakers of due timers; of a million at once, only a part.
    pub(crate) fn fire(&self, clock: Clock, fired: &mut Vec<KeptWaker>) {
        self.sweep();
        // Without timers the clock is not read.
        let next_tick = self.next_tick();
        if next_tick == u64::MAX {
            return;
        }
        let now = clock.tick_now();
        if now < next_tick {
            return;
        }
        for _ in 0..STRETCHES_PER_LOOK_MAX {
            let mut state = self.state.lock();
            let left = state.wheel.advance(now, TIMERS_PER_STRETCH, fired);
            let next_tick = state.wheel.next_tick().unwrap_or(u64::MAX);
            // Relaxed: under the lock.
            self.next_tick.store(next_tick, Ordering::Relaxed);
            if left > 0 {
                return;
            }
        }
    }

    /// Removes marked timers. The owner calls this before it sleeps, too: its own marks wake no
    /// thread.
    pub(crate) fn sweep(&self) {
        // Relaxed: see `disarm_later`.
        if self.has_marks.load(Ordering::Relaxed) {
            self.remove_marked();
        }
    }

    #[cold]
    fn remove_marked(&self) {
        let list = {
            let mut marks = self.marks.lock();
            // Relaxed: under the lock.
            self.has_marks.store(false, Ordering::Relaxed);
            marks.as_mut().map(std::mem::take)
        };
        for index in list.unwrap_or_default() {
            self.remove(index, self.state.lock());
        }
    }

    /// Notes the deadline of a timer that was armed or moved; returns whether it is the first. The
    /// caller holds the lock.
    #[inline]
    fn note_deadline(&self, deadline: u64) -> bool {
        let tick = tick_of(deadline);
        // Relaxed, both: under the lock.
        let is_first = tick < self.next_tick.load(Ordering::Relaxed);
        if is_first {
            self.next_tick.store(tick, Ordering::Relaxed);
        }
        is_first
    }

    /// Makes the owner check again, unless it is the calling thread.
    #[cold]
    fn tell_owner(&self) {
        let owner = self.owner.lock().upgrade();
        if let Some(owner) = owner
            && !super::current::owns(&owner)
        {
            owner.unpark();
        }
    }

    #[cold]
    fn give_back(&self) {
        numbers::give_back(self.number);
    }
}

impl State {
    fn is_free(&self) -> bool {
        let stood = self.standing.as_ref().map_or(0, |stood| stood.timers.len());
        !self.is_open && !self.has_owner && self.wheel.len() == 0 && stood == 0
    }
}

/// A queue in use by a slot, which frees it by dropping this.
pub(crate) struct Lease(&'static Queue);

impl Lease {
    /// A queue for a new slot.
    ///
    /// # Errors
    ///
    /// The process has too many workers.
    pub(crate) fn new(clock: Clock, stands_still: bool) -> io::Result<Lease> {
        let queue = numbers::take()?;
        *queue.marks.lock() = Some(Vec::new());
        let mut state = queue.state.lock();
        let standing = stands_still.then(Stood::default);
        *state = State { wheel: Wheel::new(clock.tick_now()), is_open: true, has_owner: true, standing };
        drop(state);
        Ok(Lease(queue))
    }

    /// Sets the slot that waits for these timers.
    pub(crate) fn set_owner(&self, owner: Weak<Slot>) {
        *self.0.owner.lock() = owner;
    }

    /// Ends all timers; no more can be armed.
    pub(crate) fn close(&self) {
        let queue = self.0;
        let marked = queue.marks.lock().take();
        let wakers = {
            let mut state = queue.state.lock();
            state.is_open = false;
            // Relaxed: under the lock.
            queue.next_tick.store(u64::MAX, Ordering::Relaxed);
            state.wheel.drain()
        };
        drop(wakers);
        for index in marked.unwrap_or_default() {
            queue.remove(index, queue.state.lock());
        }
    }
}

impl std::ops::Deref for Lease {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.close();
        *self.0.owner.lock() = Weak::new();
        let mut state = self.0.state.lock();
        state.has_owner = false;
        let is_free = state.is_free();
        drop(state);
        if is_free {
            self.0.give_back();
        }
    }
}

/// A place has 30 bits.
const PLACES_MAX: u32 = 1 << 30;
/// The number of timers moved or fired under one lock, for some microseconds.
const TIMERS_PER_STRETCH: usize = 64;
/// The most stretches of wheel work before events are handled again: about 100 us.
const STRETCHES_PER_LOOK_MAX: usize = 16;

#[cfg(test)]
mod tests;
