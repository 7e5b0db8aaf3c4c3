//! One worker's share of the driver: an epoll instance, a wake-up descriptor, a timer wheel, a ring for files.
//!
//! Who may touch what:
//!
//! | part | who |
//! |---|---|
//! | `wait` | whoever collects events: the owner for as long as it waits, another worker only if it gets the lock at once |
//! | `sources` | anyone, for a moment; never while waiting, so that registering never waits for a sleeper |
//! | `timers` | anyone, as its own table says |
//! | `ring` | made by the owner; then anyone, as its own table says. Turned by whoever has `wait` |
//! | `parking` | see below |
//!
//! States of `parking`, changed by read-modify-write only:
//!
//! | from | to | by |
//! |---|---|---|
//! | `AWAKE` | `PARKED` | the owner, about to wait |
//! | `AWAKE` | `NOTIFIED` | `unpark`: the next park returns at once |
//! | `PARKED` | `NOTIFIED` | `unpark`, which then wakes the poller |
//! | `PARKED` | `AWAKE` | the owner under a standing clock, before it takes in events (see `standing`) |
//! | any | `AWAKE` | the owner, when it has waited or need not |
//!
//! The poller's wake-up descriptor is registered edge-triggered and hardly ever read: every write is an edge. A write that comes after
//! the owner has woken for another reason makes one later park return early, which is allowed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::task::RawWakerVTable;
use std::time::Duration;

use dapple_sched::TaskWait;
use dapple_sched::foreign::KeptWaker;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::entry::Entry;
use super::poller::{COMPLETION, Poller, WAKE_UP};
use super::table::{Table, Token};
use super::timers::Lease;
use super::uring::{Limits, Next, Refused, Ring};
use super::wait::EVENTS_MAX;
use super::{Shared, shut_down_error};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// See the module's text.
pub(crate) struct Slot {
    poller: Poller,
    parking: AtomicU32,
    wait: Mutex<Buffers>,
    sources: Mutex<Table>,
    /// Sources in the table, read without the lock: the load of this slot.
    source_count: AtomicUsize,
    timers: Lease,
    /// For calls on files; empty until there is one, `None` where the kernel refuses.
    ring: OnceLock<Option<Arc<Ring>>>,
    shared: Arc<Shared>,
}

/// Reused by every collection of events.
struct Buffers {
    ready: Vec<(Arc<Entry>, EventFlags)>,
    fired: Vec<KeptWaker>,
}

impl Slot {
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Arc<Self>> {
        let slot = Arc::new(Slot {
            poller: Poller::new()?,
            parking: AtomicU32::new(AWAKE),
            wait: Mutex::new(Buffers { ready: Vec::with_capacity(EVENTS_MAX), fired: Vec::new() }),
            sources: Mutex::default(),
            source_count: AtomicUsize::new(0),
            timers: Lease::new(shared.clock, shared.standing.is_some())?,
            ring: OnceLock::new(),
            shared,
        });
        slot.timers.set_owner(Arc::downgrade(&slot));
        Ok(slot)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The ring of this slot, if it has one by now.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.get()?.as_deref()
    }

    /// The ring of this slot; to be called by the owner, who makes it. `None` where there can be none, or not now.
    pub(crate) fn ring_or_make(&self) -> Option<&Ring> {
        if self.ring.get().is_none() {
            let made = match self.shared.ring_limits {
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
        ring.with_fd(|fd| self.poller.watch_ring(fd)).map_err(|_| Refused::ForNow)?;
        Ok(ring)
    }

    /// Registered sources; only a hint to whoever spreads them.
    pub(crate) fn load(&self) -> usize {
        // Relaxed: a number that guards nothing.
        self.source_count.load(Ordering::Relaxed)
    }

    /// A place for a source, which counts from now on and is told of a shutdown. Its events begin with `watch`.
    pub(crate) fn place(&self, entry: Arc<Entry>) -> io::Result<Token> {
        let token = self.sources.lock().insert(entry).ok_or_else(shut_down_error)?;
        // Counted before the kernel may report: a poll that sees no source skips the call. Relaxed, here and elsewhere: the
        // number guards nothing. Who sees an old one comes back, and a park looks at the kernel in any case.
        self.source_count.fetch_add(1, Ordering::Relaxed);
        Ok(token)
    }

    /// Starts to report what happens on the descriptor, beginning with what is ready already. Again it changes nothing.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        match self.poller.watch(fd, token.data()) {
            // Whoever waits for the other direction was here first.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the kernel report again what is ready now.
    pub(crate) fn rearm(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(self.poller.rearm(fd, token.data())?)
    }

    /// Stops reporting; to be called before the descriptor is closed. An event that is already on its way finds the
    /// token of nobody.
    pub(crate) fn deregister(&self, fd: BorrowedFd<'_>, token: Token) {
        self.poller.unwatch(fd);
        self.forget(token);
    }

    /// The end of a place whose descriptor is not watched.
    pub(crate) fn forget(&self, token: Token) {
        let entry = self.sources.lock().remove(token);
        if entry.is_some() {
            self.source_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// As [`dapple_sched::Driver::each_waiter`].
    pub(super) fn each_waiter(&self, visit: &mut dyn FnMut(&'static RawWakerVTable, *const (), TaskWait)) {
        let entries = self.sources.lock().entries();
        for entry in entries {
            entry.each_waiter(visit);
        }
        self.timers.each_waker(&mut |table, data| visit(table, data, TaskWait::Timer));
    }

    pub(crate) fn timers(&self) -> &Lease {
        &self.timers
    }

    /// Waits for events, timers, `unpark` or the timeout; then dispatches. Only the owner calls this.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // Another worker may be serving this slot: it does not wait in there, so neither does this one for long.
        let mut buffers = self.wait.lock();
        self.timers.sweep();
        // Before it counts as parked, as handing calls to the kernel may take a while.
        let timeout = self.turn_ring(&mut buffers, timeout);
        // AcqRel, both: they pair with the swap in `unpark`, so that what was done before it is visible now.
        let parked = self.parking.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let timeout = match parked {
            true => self.until_next_timer(timeout),
            false => Some(Duration::ZERO),
        };
        let timeout = match &self.shared.standing {
            Some(standing) if parked => {
                standing.wait(self, timeout, &mut buffers.fired);
                Some(Duration::ZERO)
            }
            _ => timeout,
        };
        let awake = Awake(&self.parking);
        self.collect(&mut buffers.ready, timeout);
        drop(awake);
        self.turn_ring(&mut buffers, None);
        self.dispatch(&mut buffers);
    }

    /// Dispatches what is ready without waiting; any thread. Returns whether anything was.
    pub(crate) fn poll(&self) -> bool {
        let Some(mut buffers) = self.wait.try_lock() else {
            return false;
        };
        self.turn_ring(&mut buffers, None);
        // Relaxed: see `register`.
        if self.source_count.load(Ordering::Relaxed) > 0 {
            self.collect(&mut buffers.ready, Some(Duration::ZERO));
        }
        self.dispatch(&mut buffers)
    }

    /// Makes the current or the next `park` return; any thread.
    pub(crate) fn unpark(&self) {
        let was_parked = match &self.shared.standing {
            Some(standing) => standing.notify(self),
            None => self.notify(),
        };
        if !was_parked {
            return;
        }
        self.poller.wake();
    }

    /// The first half of `unpark`: whether the owner has to be woken.
    pub(super) fn notify(&self) -> bool {
        // AcqRel pairs with both exchanges of `park`: what was done before this is visible after the next look there.
        self.parking.swap(NOTIFIED, Ordering::AcqRel) == PARKED
    }

    /// The owner is awake before it takes events. False: somebody has unparked it.
    pub(super) fn leave_parked(&self) -> bool {
        // AcqRel: as in `park`.
        self.parking.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// For those who wait until there are events, and leave them there.
    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.poller.epoll()
    }

    /// Drops all registrations and timers. Whoever waits for a source is told; timers never fire.
    pub(crate) fn shut_down(&self) {
        let entries = self.sources.lock().close();
        // Relaxed: see `register`.
        self.source_count.store(0, Ordering::Relaxed);
        entries.iter().for_each(|entry| entry.close());
        self.timers.close();
        if let Some(ring) = self.ring() {
            ring.shut_down();
        }
    }

    /// Submits what the tasks have begun, and takes in what was completed. Returns how long one may sleep now.
    fn turn_ring(&self, buffers: &mut Buffers, timeout: Option<Duration>) -> Option<Duration> {
        let Some(ring) = self.ring() else {
            return timeout;
        };
        let next = ring.turn(&mut buffers.fired);
        match next {
            _ if !buffers.fired.is_empty() => Some(Duration::ZERO),
            Next::Retry => Some(timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER))),
            Next::Wait => timeout,
        }
    }

    fn until_next_timer(&self, timeout: Option<Duration>) -> Option<Duration> {
        let next_tick = self.timers.next_tick();
        if next_tick == u64::MAX {
            return timeout;
        }
        let until_tick = self.shared.clock.until(next_tick);
        Some(timeout.map_or(until_tick, |timeout| timeout.min(until_tick)))
    }

    /// Waits in epoll. Tokens become entries here; those of sources that are gone meet nobody.
    fn collect(&self, ready: &mut Vec<(Arc<Entry>, EventFlags)>, timeout: Option<Duration>) {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let events = match self.poller.wait(&mut room, timeout) {
            Ok(events) => events,
            Err(Errno::INTR) => return,
            Err(error) => panic!("waiting on an epoll descriptor of our own failed: {error}"),
        };
        if events.is_empty() {
            return;
        }
        let sources = self.sources.lock();
        for event in events {
            // Copied first: the kernel's layout is packed.
            let (flags, data) = (event.flags, event.data);
            if data.u64() == WAKE_UP || data.u64() == COMPLETION {
                continue;
            }
            if let Some(entry) = sources.find(Token::from_data(data)) {
                self.shared.note_io();
                ready.push((entry.clone(), flags));
            }
        }
    }

    fn dispatch(&self, buffers: &mut Buffers) -> bool {
        self.timers.fire(self.shared.clock, &mut buffers.fired);
        let any = !buffers.ready.is_empty() || !buffers.fired.is_empty();
        for (entry, flags) in buffers.ready.drain(..) {
            entry.dispatch(flags);
        }
        buffers.fired.drain(..).for_each(KeptWaker::wake);
        any
    }
}

/// The owner is awake when this is dropped, also by a panic.
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

/// When the kernel is asked again to take what it did not take: it was short of memory.
const RETRY_AFTER: Duration = Duration::from_millis(1);
