//! One worker's share of the driver: its sleep, a timer wheel, a ring for files.
//!
//! Access:
//!
//! | part | threads |
//! |---|---|
//! | `fired` | the worker that serves the slot: its owner, another one only if it gets the lock at once. No worker sleeps with this lock, except under a standing clock |
//! | `timers` | any, as its own table says |
//! | `ring` | made by the owner; then any, as its own table says. Turned with the lock of `fired` |
//! | `parking` | see below |
//!
//! States of `parking`, changed by read-modify-write only:
//!
//! | from | to | by |
//! |---|---|---|
//! | `AWAKE` | `PARKED` | the owner, about to wait in the kernel: it has the duty ([`super::duty`]) |
//! | `AWAKE` | `ASIDE` | the owner, about to sleep on this word: another worker has the duty |
//! | `AWAKE` | `NOTIFIED` | `unpark`: the next park returns at once |
//! | `PARKED` | `NOTIFIED` | `unpark`, which then wakes the poller |
//! | `ASIDE` | `NOTIFIED` | `unpark`, which then wakes the thread that sleeps on the word |
//! | `PARKED` | `AWAKE` | the owner under a standing clock, before it takes in events (see `standing`) |
//! | any | `AWAKE` | the owner, when it has waited or need not |
//!
//! The poller's wake-up descriptor is registered edge-triggered and hardly ever read: every write
//! is an edge. A write after the owner woke for another reason makes one later park, of this worker
//! or another, return early, which is allowed.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::RawWakerVTable;
use std::time::Duration;

use dapple_sched::TaskWait;
use dapple_sched::foreign::KeptWaker;

use super::poller;
use super::reactor::{Look, Reactor, SleepMode};
use super::timers::Lease;
use super::uring::{Limits, Next, Refused, Ring};
use super::{Shared, current};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// See the module's text.
pub(crate) struct Slot {
    reactor: Arc<Reactor>,
    /// The owner's number among those that share the reactor.
    member: u32,
    parking: AtomicU32,
    /// The polls of the kernel as last seen by the owner, and the number of its own polls since
    /// without a change.
    looks_seen: AtomicU32,
    polls_since: AtomicU32,
    /// Wakers to call; the memory is reused.
    fired: Mutex<Vec<KeptWaker>>,
    timers: Lease,
    /// For calls on files; empty until there is one, `None` if the kernel refuses.
    ring: OnceLock<Option<Arc<Ring>>>,
}

impl Slot {
    pub(crate) fn new(reactor: Arc<Reactor>, member: u32) -> io::Result<Arc<Self>> {
        let shared = reactor.shared();
        let slot = Arc::new(Slot {
            member,
            parking: AtomicU32::new(AWAKE),
            looks_seen: AtomicU32::new(0),
            polls_since: AtomicU32::new(0),
            fired: Mutex::default(),
            timers: Lease::new(shared.clock, shared.standing.is_some())?,
            ring: OnceLock::new(),
            reactor,
        });
        slot.timers.set_owner(Arc::downgrade(&slot));
        Ok(slot)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.reactor.shared()
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    /// The ring of this slot, if there is one by now.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.get()?.as_deref()
    }

    /// The ring of this slot; the owner calls this, and makes the ring. `None` if there can be
    /// none, or none now.
    pub(crate) fn ring_or_make(&self) -> Option<&Ring> {
        if self.ring.get().is_none() {
            let made = match self.shared().ring_limits {
                Some(limits) => self.make_ring(limits),
                None => Err(Refused::ForGood),
            };
            match made {
                Ok(ring) => drop(self.ring.set(Some(ring))),
                Err(Refused::ForGood) => drop(self.ring.set(None)),
                Err(Refused::ForNow) => {}
            }
        }
        self.ring()
    }

    #[cold]
    fn make_ring(&self, limits: Limits) -> Result<Arc<Ring>, Refused> {
        let ring = Ring::new(limits)?;
        ring.with_fd(|fd| self.reactor.watch_ring(fd, self.member)).map_err(|_| Refused::ForNow)?;
        Ok(ring)
    }

    /// As [`dapple_sched::Driver::each_waiter`].
    pub(super) fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        self.timers.each_waker(&mut |table, data| visit(table, data, TaskWait::Timer));
    }

    pub(crate) fn timers(&self) -> &Lease {
        &self.timers
    }

    /// Waits for events, timers, `unpark` or the timeout; then dispatches. Only the owner calls
    /// this.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // Another worker may be serving this slot: it does not wait in there, so this one does not
        // wait long either.
        let mut fired = self.fired.lock();
        self.timers.sweep();
        // Before it counts as parked, because passing calls to the kernel may take a while.
        let timeout = self.turn_ring(&mut fired, timeout);
        drop(fired);
        match self.reactor.begin_wait(self.member) {
            SleepMode::Kernel(look) => self.wait_in_kernel(look, timeout),
            SleepMode::Aside => self.sleep_aside(timeout),
            SleepMode::AsideForNow => {
                self.sleep_aside(Some(timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER))))
            }
        }
        self.finish(self.fired.lock());
    }

    fn wait_in_kernel(&self, mut look: Look<'_>, timeout: Option<Duration>) {
        // AcqRel, both: they pair with the swap in `unpark`, so that everything done before it is
        // visible now.
        let parked = self.parking.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let timeout = match parked {
            true => self.until_next_timer(timeout),
            false => Some(Duration::ZERO),
        };
        let timeout = match &self.shared().standing {
            Some(standing) if parked => {
                standing.wait(self, timeout, &mut self.fired.lock());
                Some(Duration::ZERO)
            }
            _ => timeout,
        };
        let awake = Awake(&self.parking);
        look.collect(timeout);
        drop(awake);
        look.dispatch();
    }

    fn sleep_aside(&self, timeout: Option<Duration>) {
        let _awake = Awake(&self.parking);
        // AcqRel, both: as in `wait_in_kernel`.
        if self.parking.compare_exchange(AWAKE, ASIDE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            poller::sleep(&self.parking, ASIDE, self.until_next_timer(timeout));
        }
    }

    /// Dispatches, without waiting, everything ready here and, if the owner has the duty, in the
    /// reactor; any thread. Returns whether there was anything. `helper`: the slot of the calling
    /// worker, if it is another one; it takes the duty over, because the owner is in a long
    /// callback.
    ///
    /// A worker without the duty leaves the events to the holder: a few events for each worker
    /// would cost more calls, and separate two tasks that talk to each other.
    pub(crate) fn poll(&self, helper: Option<&Slot>) -> bool {
        let served = self.serve();
        let member = match helper {
            Some(helper) if Arc::ptr_eq(&self.reactor, &helper.reactor) => {
                self.reactor.duty.take_over(self.member, helper.member);
                helper.member
            }
            Some(_) => {
                self.reactor.hand_over_from(self.member);
                self.member
            }
            None => {
                self.replace_a_holder_that_does_not_look();
                self.member
            }
        };
        self.reactor.poll(member) || served
    }

    /// If no worker sleeps, none is sent to help a holder in a long callback. So a worker that has
    /// polled often, and has seen no poll of the kernel since the first time, takes the duty over.
    fn replace_a_holder_that_does_not_look(&self) {
        let looks = self.reactor.looks();
        // Relaxed, all: the owner's own words, and hints.
        if looks != self.looks_seen.swap(looks, Ordering::Relaxed) {
            self.polls_since.store(0, Ordering::Relaxed);
        } else if self.polls_since.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
            self.reactor.duty.take_over_from_any(self.member);
        }
    }

    /// Turns the ring and fires due timers, unless another thread is doing so; any thread. Returns
    /// whether there was anything.
    pub(super) fn serve(&self) -> bool {
        self.fired.try_lock().is_some_and(|fired| self.finish(fired))
    }

    /// The owner, the caller, rests, as do the owners of all slots from `active` on; this slot has
    /// number `own`.
    pub(super) fn rest(&self, own: usize, active: usize) {
        let first = own - self.member as usize;
        self.reactor.hand_over_to_first(active.saturating_sub(first) as u32, self.member);
    }

    pub(super) fn member(&self) -> u32 {
        self.member
    }

    /// A hint.
    pub(super) fn sleeps_aside(&self) -> bool {
        // Relaxed: `unpark` decides by an exchange.
        self.parking.load(Ordering::Relaxed) == ASIDE
    }

    fn finish(&self, mut fired: MutexGuard<'_, Vec<KeptWaker>>) -> bool {
        let retry = self.ring().is_some_and(|ring| ring.turn(&mut fired) == Next::Retry);
        if retry && !current::with_own_slot(|own| own.is_some_and(|own| ptr::eq(own, self))) {
            // The ring must be turned again soon, and the owner may sleep without a timeout.
            self.unpark();
        }
        self.timers.fire(self.shared().clock, &mut fired);
        let any = !fired.is_empty();
        fired.drain(..).for_each(KeptWaker::wake);
        any
    }

    /// Makes the current or the next `park` return; any thread.
    pub(crate) fn unpark(&self) {
        if self.shared().environment.is_some() {
            // Its workers are stepped, and poll by themselves.
            return;
        }
        if let Some(standing) = &self.shared().standing {
            if standing.notify(self) {
                self.reactor.poller.wake();
            }
            return;
        }
        match self.swap_notified() {
            PARKED => self.reactor.poller.wake(),
            ASIDE => poller::wake_sleeper(&self.parking),
            _ => {}
        }
    }

    /// The first half of `unpark`.
    fn swap_notified(&self) -> u32 {
        // AcqRel pairs with the exchanges of `park`: everything done before this is visible after
        // the next exchange there.
        self.parking.swap(NOTIFIED, Ordering::AcqRel)
    }

    /// The first half of `unpark` under a standing clock, where each worker has a reactor of its
    /// own: returns whether the owner has to be woken.
    pub(super) fn notify(&self) -> bool {
        self.swap_notified() == PARKED
    }

    /// Makes the owner awake before it takes events. False if another thread has unparked it.
    pub(super) fn leave_parked(&self) -> bool {
        // AcqRel: as in `park`.
        self.parking.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// For threads that wait until there are events, and do not take them.
    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.reactor.poller.epoll()
    }

    /// Drops all timers, which then never fire, and calls on files.
    pub(crate) fn shut_down(&self) {
        self.timers.close();
        if let Some(ring) = self.ring() {
            ring.shut_down();
        }
    }

    /// Submits calls that tasks have begun, and takes in completions. Returns how long the owner
    /// may sleep now.
    fn turn_ring(&self, fired: &mut Vec<KeptWaker>, timeout: Option<Duration>) -> Option<Duration> {
        let Some(ring) = self.ring() else {
            return timeout;
        };
        let next = ring.turn(fired);
        match next {
            _ if !fired.is_empty() => Some(Duration::ZERO),
            Next::Retry => Some(timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER))),
            Next::Wait => timeout,
        }
    }

    fn until_next_timer(&self, timeout: Option<Duration>) -> Option<Duration> {
        let next_tick = self.timers.next_tick();
        if next_tick == u64::MAX {
            return timeout;
        }
        let until_tick = self.shared().clock.until(next_tick);
        Some(timeout.map_or(until_tick, |timeout| timeout.min(until_tick)))
    }
}

/// Makes the owner awake when dropped, even by a panic.
struct Awake<'a>(&'a AtomicU32);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        // AcqRel pairs with the swap in `unpark`.
        self.0.swap(AWAKE, Ordering::AcqRel);
    }
}

const AWAKE: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;
const ASIDE: u32 = 3;

/// This many polls of a busy worker, at least 50 us apart, are about a millisecond.
const PATIENCE: u32 = 16;

/// The time until another try after the kernel was short of memory and refused calls, or after
/// another worker had a lock.
const RETRY_AFTER: Duration = Duration::from_millis(1);
