//! What the parts of a connection share: its task, its stream, its requests, and the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_sched::foreign::KeptWaker;
use dapple_stage::Refused;
use dapple_stage::admission::Admitted;

use super::state::State;
use crate::listener::Peer;
use crate::options::Options;

/// See the module.
pub(crate) struct Link {
    peer: Peer,
    /// By the real clock, as it is compared with the kernel's.
    accepted: std::time::Instant,
    state: Mutex<State>,
    /// Nanoseconds from `accepted` to when what was read last reached this machine; negative if it waited to be accepted, too.
    arrived_ns: AtomicI64,
    /// The strongest order that was given.
    order: AtomicU8,
    wakers: Mutex<Wakers>,
    /// What was decided about the first request before hyper has read it.
    decision: Mutex<Option<Decision>>,
    /// It speaks another protocol by now, and is somebody else's.
    is_upgraded: AtomicBool,
    /// What closes it then, until it was called.
    close: Mutex<Option<Close>>,
    /// Others wait for its place, and it was told to finish for that.
    is_asked: AtomicBool,
    /// It is being closed, which may take a while, and nothing is to be gained by telling it so.
    is_closing: AtomicBool,
    /// It has no place any more.
    is_over: AtomicBool,
}

/// What admission says to a request.
pub(crate) type Decision = Result<Admitted, Refused>;

/// Closes a stream that is somebody else's.
type Close = Box<dyn FnOnce() + Send>;

/// Who hears of orders.
#[derive(Clone, Debug, Default)]
struct Wakers {
    /// The connection's task, or whoever reads once it was upgraded.
    reader: Option<Arc<KeptWaker>>,
    /// Whoever waits to write: once it was upgraded, that may be another task.
    writer: Option<Arc<KeptWaker>>,
}

/// What the server wants of a connection, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
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

impl Link {
    pub(crate) fn new(peer: Peer, options: &Options, now: Instant) -> Link {
        Link {
            peer,
            accepted: std::time::Instant::now(),
            state: Mutex::new(State::new(options, now)),
            arrived_ns: AtomicI64::new(0),
            order: AtomicU8::new(Order::GoOn as u8),
            wakers: Mutex::default(),
            decision: Mutex::default(),
            is_upgraded: AtomicBool::new(false),
            close: Mutex::new(None),
            is_asked: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nothing is wanted of this side, if that is so and it may end for the sake of others; or since when it is busy.
    pub(crate) fn rests_since(&self, now: Instant) -> Result<Instant, Instant> {
        let is_upgraded = self.is_upgraded();
        self.state().rests_since(now).and_then(|since| if is_upgraded { Err(since) } else { Ok(since) })
    }

    /// hyper has handed the stream on, which `close` closes. That is not called where a lock is held.
    pub(crate) fn set_upgraded(&self, close: Close) {
        *self.lock_close() = Some(close);
        self.is_upgraded.store(true, Ordering::SeqCst);
        // Whoever reads or writes may have looked between the order and this. By the locks, either the order is seen here, or who gave it
        // closes the stream and wakes them later.
        let wakers = self.lock_wakers().clone();
        if self.ordered() == Order::Cut {
            self.close_upgraded();
            wakers.wake();
        }
    }

    fn close_upgraded(&self) {
        let close = self.lock_close().take();
        if let Some(close) = close {
            close();
        }
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.is_upgraded.load(Ordering::SeqCst)
    }

    /// Has it finish, as others wait for its place.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        self.order(Order::Finish);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_closing(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// What becomes of the first request, which hyper is about to read.
    pub(crate) fn decide(&self, decision: Decision) {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
    }

    /// What was decided about this request, if it is the first and anything was.
    pub(crate) fn take_decision(&self) -> Option<Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What was read just now reached this machine so long ago.
    pub(crate) fn set_arrived(&self, ago: Duration) {
        let [age_ns, ago_ns] = [self.accepted.elapsed(), ago].map(|time| time.as_nanos() as i64);
        self.arrived_ns.store(age_ns - ago_ns, Ordering::Relaxed);
    }

    /// When what was read last reached this machine.
    pub(crate) fn arrived(&self) -> std::time::Instant {
        let since_ns = self.arrived_ns.load(Ordering::Relaxed);
        let distance = Duration::from_nanos(since_ns.unsigned_abs());
        let arrived = if since_ns < 0 { self.accepted.checked_sub(distance) } else { Some(self.accepted + distance) };
        // None only if the machine is younger than what it has received.
        arrived.unwrap_or(self.accepted)
    }

    /// Tells the connection. A weaker order than one before changes nothing.
    pub(crate) fn order(&self, order: Order) {
        if self.order.fetch_max(order as u8, Ordering::Release) < order as u8 {
            // They stay: who is told to finish, and does not look again, is to hear of the end, too.
            let wakers = self.lock_wakers().clone();
            if order == Order::Cut {
                self.close_upgraded();
            }
            wakers.wake();
        }
    }

    /// The strongest order so far, with `waker` to be woken for a stronger one.
    pub(crate) fn watch(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.reader, waker);
        // After the waker stands: an order that comes later finds it.
        self.ordered()
    }

    /// The same for whoever waits to write.
    pub(crate) fn watch_writing(&self, waker: &Waker) -> Order {
        self.keep(|wakers| &mut wakers.writer, waker);
        self.ordered()
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

    /// The strongest order so far.
    pub(crate) fn ordered(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::EndIfResting,
            2 => Order::LastReply,
            3 => Order::Finish,
            _ => Order::Cut,
        }
    }

    /// Takes an order to make room back, as a request came first.
    pub(crate) fn go_on(&self) {
        let (room, none) = (Order::EndIfResting as u8, Order::GoOn as u8);
        let _ = self.order.compare_exchange(room, none, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn lock_close(&self) -> MutexGuard<'_, Option<Close>> {
        self.close.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_wakers(&self) -> MutexGuard<'_, Wakers> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.ordered();
        f.debug_struct("Link").field("peer", &self.peer).field("order", &order).finish_non_exhaustive()
    }
}

impl Wakers {
    fn wake(self) {
        [self.reader, self.writer].into_iter().flatten().for_each(|waker| waker.wake_by_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use super::{Instant, Link, Options, Order, Peer};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_stronger_order_wakes_again_whoever_did_not_look() {
        let link = Link::new(Peer::Unix, &Options::default(), Instant::now());
        let counts = [Arc::<Count>::default(), Arc::default()];
        let wakers: Vec<Waker> = counts.iter().map(|count| count.clone().into()).collect();
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(link.watch(&wakers[0]), Order::GoOn);
        assert_eq!(link.watch_writing(&wakers[1]), Order::GoOn);
        link.order(Order::Finish);
        link.order(Order::Finish);
        assert_eq!(woken(), [1, 1]);
        link.order(Order::Cut);
        assert_eq!(woken(), [2, 2]);
        let closed = Arc::<Count>::default();
        let close = closed.clone();
        link.set_upgraded(Box::new(move || close.wake()));
        assert_eq!(woken(), [3, 3], "they may have looked before it was so");
        assert_eq!(closed.0.load(Ordering::Relaxed), 1, "once");
        assert_eq!(link.watch_writing(&wakers[1]), Order::Cut);
    }

    #[test]
    fn what_waited_to_be_accepted_has_waited() {
        let begin = std::time::Instant::now();
        let link = Link::new(Peer::Unix, &Options::default(), Instant::now());
        link.set_arrived(Duration::from_millis(50));
        assert!(begin - link.arrived() >= Duration::from_millis(50) - begin.elapsed(), "before it was accepted");
        link.set_arrived(Duration::ZERO);
        assert!(link.arrived() >= begin, "just now");
    }
}
