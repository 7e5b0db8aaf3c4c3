//! A connection as those see it who have it make room for others.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use dapple_io::time::Instant;
use dapple_sched::foreign::KeptWaker;

use super::Client;

/// A connection that has a place, and may have to leave it to another.
pub trait Holder: Send + Sync + 'static {
    /// Whose it is.
    fn client(&self) -> Client;

    /// Since when nothing is wanted of this side, if that is so and it may end for the sake of others; or since when it is busy.
    fn rests_since(&self, now: Instant) -> Result<Instant, Instant>;

    /// The strongest order so far.
    fn orders(&self) -> &Orders;

    /// Tells it. A weaker order than one before changes nothing.
    fn order(&self, order: Order) {
        self.orders().give(order, || ());
    }
}

/// An order of the server to a connection, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Nothing.
    GoOn,
    /// Make room, unless a request is being answered.
    EndIfResting,
    /// The next reply is the last.
    LastReply,
    /// End as soon as what is open has ended.
    Finish,
    /// End.
    Cut,
}

/// The orders that a connection was given, and who hears of them.
#[derive(Default)]
pub struct Orders {
    /// The strongest order that was given.
    order: AtomicU8,
    wakers: Mutex<Wakers>,
    /// Others wait for its place, and it was told to finish for that.
    is_asked: AtomicBool,
    /// It is being closed, which may take a while, and nothing is to be gained by telling it so.
    is_closing: AtomicBool,
    /// It has no place any more.
    is_over: AtomicBool,
}

/// The tasks that hear of orders.
#[derive(Clone, Debug, Default)]
struct Wakers {
    /// The connection's task, or the one that reads once it was upgraded.
    reader: Option<Arc<KeptWaker>>,
    /// The task that waits to write: once the connection was upgraded, that may be another one.
    writer: Option<Arc<KeptWaker>>,
}

impl Orders {
    /// Gives an order, with `before` to be done before those who wait are woken. A weaker order than one before changes nothing.
    pub fn give(&self, order: Order, before: impl FnOnce()) {
        if self.order.fetch_max(order as u8, Ordering::Release) < order as u8 {
            // They stay: who is told to finish, and does not look again, is to hear of the end, too.
            let wakers = self.lock_wakers().clone();
            before();
            wakers.wake();
        }
    }

    /// The strongest order so far, with `waker` to be woken for a stronger one.
    pub fn watch(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.reader, waker);
        // After the waker stands: an order that comes later finds it.
        self.ordered()
    }

    /// The same for the task that waits to write.
    pub fn watch_writing(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.writer, waker);
        self.ordered()
    }

    /// The strongest order so far.
    pub fn ordered(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::EndIfResting,
            2 => Order::LastReply,
            3 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// Takes an order to make room back, as a request came first.
    pub fn go_on(&self) {
        let (room, none) = (Order::EndIfResting as u8, Order::GoOn as u8);
        let _ = self.order.compare_exchange(room, none, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// It is being closed.
    pub fn set_closing(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Calls `between` with what wakes those who wait, taken before.
    pub(crate) fn wake_after(&self, between: impl FnOnce()) {
        let wakers = self.lock_wakers().clone();
        between();
        wakers.wake();
    }

    /// Others wait for its place; an order to finish follows.
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

    /// To clone a waker and to drop one is foreign code: without the lock.
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
