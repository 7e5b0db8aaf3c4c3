//! What the parts of a connection share: its task, its stream, its requests, and the server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_tower::Refused;
use dapple_tower::admission::Admitted;

use super::state::State;
use crate::connections::{Client, Holder, Order, Orders};
use crate::options::Options;
use dapple_io::net::Peer;

/// See the module.
pub(crate) struct Link {
    peer: Peer,
    /// By the real clock, as it is compared with the kernel's.
    accepted: std::time::Instant,
    state: Mutex<State>,
    /// Nanoseconds from `accepted` to when what was read last reached this machine; negative if it waited to be accepted, too.
    arrived_ns: AtomicI64,
    orders: Orders,
    /// What was decided about the first request before hyper has read it.
    decision: Mutex<Option<Decision>>,
    /// It speaks another protocol by now, and is somebody else's.
    is_upgraded: AtomicBool,
    /// What closes it then, until it was called.
    close: Mutex<Option<Close>>,
}

/// What admission says to a request.
pub(crate) type Decision = Result<Admitted, Refused>;

/// Closes a stream that is somebody else's.
type Close = Box<dyn FnOnce() + Send>;

impl Link {
    pub(crate) fn new(peer: Peer, options: &Options, now: Instant) -> Link {
        Link {
            peer,
            accepted: std::time::Instant::now(),
            state: Mutex::new(State::new(options, now)),
            arrived_ns: AtomicI64::new(0),
            orders: Orders::default(),
            decision: Mutex::default(),
            is_upgraded: AtomicBool::new(false),
            close: Mutex::new(None),
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// hyper has handed the stream on, which `close` closes. That is not called where a lock is held.
    pub(crate) fn set_upgraded(&self, close: Close) {
        *self.lock_close() = Some(close);
        self.is_upgraded.store(true, Ordering::SeqCst);
        // Whoever reads or writes may have looked between the order and this. By the locks, either the order is seen here, or who gave it
        // closes the stream and wakes them later.
        if self.ordered() == Order::Cut {
            self.orders.wake_after(|| self.close_upgraded());
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

    pub(crate) fn set_closing(&self) {
        self.orders.set_closing();
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

    /// The strongest order so far, with `waker` to be woken for a stronger one.
    pub(crate) fn watch(&self, waker: &Waker) -> Order {
        self.orders.watch(waker)
    }

    /// The same for whoever waits to write.
    pub(crate) fn watch_writing(&self, waker: &Waker) -> Order {
        self.orders.watch_writing(waker)
    }

    /// The strongest order so far.
    pub(crate) fn ordered(&self) -> Order {
        self.orders.ordered()
    }

    /// Takes an order to make room back, as a request came first.
    pub(crate) fn go_on(&self) {
        self.orders.go_on();
    }

    fn lock_close(&self) -> MutexGuard<'_, Option<Close>> {
        self.close.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder for Link {
    fn client(&self) -> Client {
        self.peer.network()
    }

    fn rests_since(&self, now: Instant) -> Result<Instant, Instant> {
        let is_upgraded = self.is_upgraded();
        self.state().rests_since(now).and_then(|since| if is_upgraded { Err(since) } else { Ok(since) })
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    fn order(&self, order: Order) {
        self.orders.give(order, || {
            if order == Order::Cut {
                self.close_upgraded();
            }
        });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.ordered();
        f.debug_struct("Link").field("peer", &self.peer).field("order", &order).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use super::{Holder as _, Instant, Link, Options, Order, Peer};

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
