//! The connection as the place-sharing code sees it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dapple_io::time::Instant;
use dapple_sched::foreign::KeptWaker;

use super::Client;

/// A connection that has a place, and may have to give it up.
pub trait Holder: Send + Sync + 'static {
    /// The client of this connection.
    fn client(&self) -> Client;

    /// `Ok` with the time since when the connection is idle and may be ended; `Err` with the time
    /// since when it is busy.
    fn rests_since(&self, now: Instant) -> Result<Instant, Instant>;

    /// The strongest order so far.
    fn orders(&self) -> &Orders;

    /// Gives an order. An order weaker than an earlier one changes nothing.
    fn order(&self, order: Order) {
        self.orders().give(order, || ());
    }
}

/// An order of the server to a connection; the weakest is first, the strongest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// No order.
    GoOn,
    /// Make room, unless a request is being answered.
    EndIfResting,
    /// The next reply is the last.
    LastReply,
    /// End as soon as all open requests have ended.
    Finish,
    /// End now.
    Cut,
}

/// The orders given to a connection, and the tasks that follow them.
#[derive(Default)]
pub struct Orders {
    /// The strongest order that was given.
    order: AtomicU8,
    wakers: Mutex<Wakers>,
    /// Whether newcomers wait for this slot, and the connection was therefore told to finish.
    is_asked: AtomicBool,
    /// Whether the connection is closing, which may take a while; further orders change nothing.
    is_closing: AtomicBool,
    /// Whether the connection has given up its place.
    is_over: AtomicBool,
}

/// The tasks that orders wake.
#[derive(Clone, Debug, Default)]
struct Wakers {
    /// The connection's task, or after an upgrade the reading task.
    reader: Option<Arc<KeptWaker>>,
    /// The task that waits to write; after an upgrade it may be another one.
    writer: Option<Arc<KeptWaker>>,
}

impl Orders {
    /// Gives an order, calling `before` before it wakes the waiting tasks. An order weaker than an
    /// earlier one changes nothing.
    pub fn give(&self, order: Order, before: impl FnOnce()) {
        if self.order.fetch_max(order as u8, Ordering::Release) < order as u8 {
            // The wakers stay: a task that was told to finish, and does not check again, must still
            // learn of the end.
            let wakers = self.lock_wakers().clone();
            before();
            wakers.wake();
        }
    }

    /// Returns the strongest order so far, and registers `waker` for a stronger one.
    pub fn watch(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.reader, waker);
        // The waker is registered first, so a later order finds it.
        self.ordered()
    }

    /// The same as [`watch`](Orders::watch), for the task that waits to write.
    pub fn watch_writing(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.writer, waker);
        self.ordered()
    }

    /// Returns the strongest order so far.
    pub fn ordered(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::EndIfResting,
            2 => Order::LastReply,
            3 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// Withdraws an order to make room, because a request arrived first.
    pub fn go_on(&self) {
        let (room, none) = (Order::EndIfResting as u8, Order::GoOn as u8);
        let _ = self.order.compare_exchange(room, none, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Marks the connection as closing.
    pub fn set_closing(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Takes the wakers of the waiting tasks, calls `between`, then wakes them.
    pub(crate) fn wake_after(&self, between: impl FnOnce()) {
        let wakers = self.lock_wakers().clone();
        between();
        wakers.wake();
    }

    /// Notes that newcomers wait for the place; an order to finish follows.
    pub(super) fn set_asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    pub(super) fn set_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Cloning and dropping a waker is foreign code, so both happen without the lock.
    fn keep(&self, place: fn(&mut Wakers) -> &mut Option<Arc<KeptWaker>>, waker: &Waker) {
        let knows = place(&mut self.lock_wakers()).as_ref().is_some_and(|known| known.will_wake(waker));
        if !knows {
            let waker = Arc::new(KeptWaker::from(waker));
            let old = place(&mut self.lock_wakers()).replace(waker);
            drop(old);
        }
    }

    fn lock_wakers(&self) -> MutexGuard<'_, Wakers> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Orders").field(&self.ordered()).finish()
    }
}

impl Wakers {
    fn wake(self) {
        [self.reader, self.writer].into_iter().flatten().for_each(|waker| waker.wake_by_ref());
    }
}
