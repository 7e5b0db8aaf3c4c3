//! The reactor, in which workers wait together: an epoll instance, its registered sources, and the
//! duty of waiting.
//!
//! Access:
//!
//! | part | threads |
//! |---|---|
//! | `duty` | see [`super::duty`] |
//! | `events` | the worker that collects events: the holder of the duty for as long as it waits, other workers only if they get the lock at once |
//! | `sources` | anyone, for a moment; never while waiting, so that registering never waits for a sleeper |
//!
//! A worker that waits takes the lock of `events` before it counts as parked, and keeps it until it
//! is back. So no other worker takes the edge of the wake-up descriptor, which is meant for the
//! waiting one.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::duty::{Duty, Waits};
use super::entry::Entry;
use super::poller::{COMPLETION, Poller, WAKE_UP};
use super::slot::Slot;
use super::table::{Table, Token};
use super::wait::EVENTS_MAX;
use super::{Shared, shut_down_error};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// See the module's text.
pub(crate) struct Reactor {
    pub(super) poller: Poller,
    pub(super) duty: Duty,
    events: Mutex<Events>,
    sources: Mutex<Table>,
    /// Number of sources in the table, read without the lock: the load of this reactor.
    source_count: AtomicUsize,
    /// The number of polls of the kernel, wrapping; a hint.
    looks: AtomicU32,
    /// Whether a ring may report completions.
    has_ring: AtomicBool,
    /// The slots of the workers that share it; set once, before the workers start.
    members: OnceLock<Box<[Weak<Slot>]>>,
    shared: Arc<Shared>,
}

/// The events of one collection; the memory is reused.
struct Events {
    ready: Vec<(Arc<Entry>, EventFlags)>,
    /// Members with completions in their ring.
    completed: Vec<u32>,
}

/// The lock of `events`, under which a worker takes in the kernel's reports.
pub(super) struct Look<'a> {
    reactor: &'a Reactor,
    events: MutexGuard<'a, Events>,
    /// Kept until the events are dispatched.
    waits: Option<Waits<'a>>,
}

/// The reactor in which a worker may sleep; see [`Reactor::begin_wait`].
pub(super) enum SleepMode<'a> {
    /// In the kernel.
    Kernel(Look<'a>),
    /// Aside: another worker has the duty.
    Aside,
    /// Aside, only for a moment: it has the duty, and another worker is taking in events.
    AsideForNow,
}

impl Reactor {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Reactor {
            poller: Poller::new()?,
            duty: Duty::new(),
            events: Mutex::new(Events { ready: Vec::with_capacity(EVENTS_MAX), completed: Vec::new() }),
            sources: Mutex::default(),
            source_count: AtomicUsize::new(0),
            looks: AtomicU32::new(0),
            has_ring: AtomicBool::new(false),
            members: OnceLock::new(),
            shared,
        }))
    }

    pub(super) fn set_members(&self, slots: &[Arc<Slot>]) {
        let _ = self.members.set(slots.iter().map(Arc::downgrade).collect());
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Number of registered sources; a hint for the choice of a reactor.
    pub(crate) fn load(&self) -> usize {
        // Relaxed: a count that guards nothing.
        self.source_count.load(Ordering::Relaxed)
    }

    /// A slot for a source, which counts from now on and is woken by a shutdown. Its events begin
    /// with `watch`.
    pub(crate) fn place(&self, entry: Arc<Entry>) -> io::Result<Token> {
        let token = self.sources.lock().insert(entry).ok_or_else(shut_down_error)?;
        // Counted before the kernel may report: a poll that sees no source skips the call. Relaxed,
        // here and elsewhere: the count guards nothing. A worker that sees an old value comes back,
        // and a park polls the kernel in any case.
        self.source_count.fetch_add(1, Ordering::Relaxed);
        Ok(token)
    }

    /// Starts to report events of the descriptor, beginning with present readiness. Another call
    /// changes nothing.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        match self.poller.watch(fd, token.data()) {
            // A task that waits for the other direction was here first.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the kernel report present readiness again.
    pub(crate) fn rearm(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(self.poller.rearm(fd, token.data())?)
    }

    /// Stops reporting; call it before closing the descriptor. An event in transit finds no source
    /// for its token.
    pub(crate) fn deregister(&self, fd: BorrowedFd<'_>, token: Token) {
        self.poller.unwatch(fd);
        self.forget(token);
    }

    /// Frees the place of an unwatched descriptor.
    pub(crate) fn forget(&self, token: Token) {
        let entry = self.sources.lock().remove(token);
        if entry.is_some() {
            self.source_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reports completions of a member's ring.
    pub(super) fn watch_ring(&self, fd: BorrowedFd<'_>, member: u32) -> Result<(), Errno> {
        self.poller.watch_ring(fd, COMPLETION + u64::from(member))?;
        // Relaxed: as with `source_count`.
        self.has_ring.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// All entries, for dumps.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        self.sources.lock().entries()
    }

    pub(super) fn looks(&self) -> u32 {
        // Relaxed: a hint.
        self.looks.load(Ordering::Relaxed)
    }

    /// The reactor in which the worker will sleep.
    pub(super) fn begin_wait(&self, worker: u32) -> SleepMode<'_> {
        let Some(waits) = self.duty.begin_wait(worker) else { return SleepMode::Aside };
        // Not `lock`: the thread that has it may have lost its processor, and an unpark could not
        // wake this worker meanwhile.
        match self.events.try_lock() {
            Some(events) => SleepMode::Kernel(Look { reactor: self, events, waits: Some(waits) }),
            None => SleepMode::AsideForNow,
        }
    }

    /// A worker in a long callback has the duty, and its helper has another reactor: gives the duty
    /// to a worker that sleeps aside.
    pub(super) fn hand_over_from(&self, holder: u32) {
        let members = self.members.get().into_iter().flatten().filter_map(Weak::upgrade);
        if let Some(slot) = members.into_iter().find(|slot| slot.sleeps_aside()) {
            self.duty.take_over(holder, slot.member());
            slot.unpark();
        }
    }

    /// `holder`, the caller, rests: if it has the duty, one of the first `working` members gets it,
    /// preferably one that sleeps aside. One that is awake polls the kernel in its next round, and
    /// does not sleep before that.
    pub(super) fn hand_over_to_first(&self, working: u32, holder: u32) {
        if !self.duty.is_held_by(holder) {
            return;
        }
        let members = self.members.get().into_iter().flatten().take(working as usize);
        let members: Vec<_> = members.filter_map(Weak::upgrade).collect();
        let aside = members.iter().find(|slot| slot.sleeps_aside());
        if let Some(slot) = aside.or(members.first()) {
            self.duty.take_over(holder, slot.member());
            slot.unpark();
        }
    }

    /// Dispatches ready events, without waiting, if `worker` holds the duty; any thread. Returns
    /// whether there were any.
    pub(super) fn poll(&self, worker: u32) -> bool {
        self.duty.is_held_by(worker) && self.poll_shared()
    }

    /// As `poll`, for any worker, unless the holder is in the kernel or takes in events at the moment.
    pub(super) fn poll_shared(&self) -> bool {
        // Relaxed: see `place`.
        if self.source_count.load(Ordering::Relaxed) == 0 && !self.has_ring.load(Ordering::Relaxed) {
            return false;
        }
        let Some(events) = self.events.try_lock() else {
            return false;
        };
        let mut look = Look { reactor: self, events, waits: None };
        look.collect(Some(Duration::ZERO));
        look.dispatch()
    }

    /// Drops all registrations, and wakes the tasks that wait for a source.
    pub(super) fn shut_down(&self) {
        let entries = self.sources.lock().close();
        // Relaxed: see `place`.
        self.source_count.store(0, Ordering::Relaxed);
        entries.iter().for_each(|entry| entry.close());
    }
}

impl Look<'_> {
    /// Waits in epoll. Tokens become entries here; those of removed sources find none.
    pub(super) fn collect(&mut self, timeout: Option<Duration>) {
        // Relaxed: a hint. Under the lock, so a load and a store suffice.
        self.reactor.looks.store(self.reactor.looks().wrapping_add(1), Ordering::Relaxed);
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let events = match self.reactor.poller.wait(&mut room, timeout) {
            Ok(events) => events,
            Err(Errno::INTR) => return,
            Err(error) => panic!("waiting on an epoll descriptor of our own failed: {error}"),
        };
        self.waits = None;
        if events.is_empty() {
            return;
        }
        let sources = self.reactor.sources.lock();
        for event in events {
            // Copied first: the kernel's layout is packed.
            let (flags, data) = (event.flags, event.data);
            match data.u64() {
                WAKE_UP => {}
                // The places of tables stay below these, see `COMPLETION`.
                ring @ COMPLETION..WAKE_UP => self.events.completed.push((ring - COMPLETION) as u32),
                _ => {
                    if let Some(entry) = sources.find(Token::from_data(data)) {
                        self.reactor.shared.note_io();
                        self.events.ready.push((entry.clone(), flags));
                    }
                }
            }
        }
    }

    /// Wakes the waiters for the collected events; returns whether there were events.
    pub(super) fn dispatch(&mut self) -> bool {
        let Events { ready, completed } = &mut *self.events;
        let any = !ready.is_empty() || !completed.is_empty();
        for (entry, flags) in ready.drain(..) {
            entry.dispatch(flags);
        }
        for member in completed.drain(..) {
            let slot = self.reactor.members.get().and_then(|members| members.get(member as usize)?.upgrade());
            if let Some(slot) = slot {
                slot.serve();
            }
        }
        any
    }
}
