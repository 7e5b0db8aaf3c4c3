//! The phase of a connection, and the orders by which it makes room for others.
//!
//! ```text
//!   awaiting ──── a request ────► busy ──── its reply has ended ────► resting
//!      ▲  rests after a moment     ▲                                     │
//!      └─────────── a part of a head ◄──────────┴──── a request ◄────────┘
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use dapple_io::time::Instant;

use crate::connections::{Client, Holder, Order, Orders};
use crate::http::clock::now_ms;

/// A connection's phase and its orders. Only the connection's own task changes the phase; a search
/// for connections that can make room sees it a moment later.
pub struct Link {
    client: Client,
    /// The phase in the lowest two bits, and above them its start: milliseconds of the coarse
    /// clock.
    phase: AtomicU64,
    orders: Orders,
    /// Whether the connection speaks another protocol, and belongs to a task of the program.
    is_upgraded: AtomicBool,
    /// Closes an upgraded connection; taken when called.
    close: Mutex<Option<Close>>,
}

/// Closes a stream that belongs to a task of the program.
type Close = Box<dyn FnOnce() + Send>;

impl Link {
    /// Creates the link of a new connection.
    pub fn new(client: Option<IpAddr>) -> Link {
        Link {
            client,
            phase: AtomicU64::new(AWAITING | now_ms() << 2),
            orders: Orders::default(),
            is_upgraded: AtomicBool::new(false),
            close: Mutex::new(None),
        }
    }

    /// Notes that a request arrived.
    pub fn begin(&self) {
        self.enter(BUSY, now_ms);
        if self.orders.ordered() == Order::EndIfResting {
            self.orders.go_on();
        }
    }

    /// Notes that a part of a request arrived, and the connection waits for the rest.
    pub fn await_request(&self, now_ms: u64) {
        self.enter(AWAITING, || now_ms);
    }

    /// Notes that the last reply has ended.
    pub fn rest(&self, now_ms: u64) {
        self.enter(RESTING, || now_ms);
    }

    fn enter(&self, phase: u64, now_ms: impl FnOnce() -> u64) {
        if self.phase.load(Ordering::Relaxed) & PHASES != phase {
            self.phase.store(phase | now_ms() << 2, Ordering::Relaxed);
        }
    }

    /// Whether the connection should end now, because others need its place and no request is open.
    pub fn gives_way(&self) -> bool {
        match self.orders.ordered() {
            Order::GoOn | Order::LastReply => false,
            Order::EndIfResting => {
                let rests = self.rests(now_ms()).is_ok();
                if !rests {
                    // A request may be on its way.
                    self.orders.go_on();
                }
                rests
            }
            Order::Finish | Order::Cut => true,
        }
    }

    /// Whether the next reply is the last.
    pub fn is_finishing(&self) -> bool {
        self.orders.ordered() >= Order::LastReply
    }

    /// Notes that the connection is closing, which may take a while: no order can end it sooner.
    pub(crate) fn set_closing(&self) {
        self.orders.set_closing();
    }

    /// Ready when a connection without a request so far should end. Cancel safe.
    pub async fn unwanted(&self) {
        poll_fn(|cx| {
            self.orders.watch(cx.waker());
            if self.gives_way() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs `serving` to its end, or returns `None` if the connection is cut. Orders wake its task.
    pub async fn unless_cut<F: Future>(&self, mut serving: Pin<&mut F>) -> Option<F::Output> {
        let mut known: Option<Waker> = None;
        poll_fn(|cx| {
            if !known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                self.orders.watch(cx.waker());
                known = Some(cx.waker().clone());
            }
            if self.orders.ordered() == Order::Cut {
                return Poll::Ready(None);
            }
            serving.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Notes that the connection speaks another protocol from now on. `close` closes it, and is
    /// never called while a lock is held.
    pub(crate) fn set_upgraded(&self, close: Close) {
        *self.lock_close() = Some(close);
        self.is_upgraded.store(true, Ordering::SeqCst);
        // The task that reads or writes may have checked between the order and this point. Either
        // this thread sees the order, or the thread that gave it closes the stream and wakes the
        // tasks later: the locks ensure that.
        if self.orders.ordered() == Order::Cut {
            self.orders.wake_after(|| self.close_upgraded());
        }
    }

    fn close_upgraded(&self) {
        let close = self.lock_close().take();
        if let Some(close) = close {
            close();
        }
    }

    fn lock_close(&self) -> MutexGuard<'_, Option<Close>> {
        self.close.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the connection has been idle, or busy.
    fn rests(&self, now_ms: u64) -> Result<Duration, Duration> {
        let phase = self.phase.load(Ordering::Relaxed);
        let since = Duration::from_millis(now_ms.saturating_sub(phase >> 2));
        match phase & PHASES {
            RESTING => Ok(since),
            AWAITING if since >= REQUEST_AWAITED => Ok(since),
            _ => Err(since),
        }
    }
}

impl Holder for Link {
    fn client(&self) -> Client {
        self.client
    }

    fn rests_since(&self, now: Instant) -> Result<Instant, Instant> {
        let ago = |since: Duration| now.checked_sub(since).unwrap_or(now);
        let rests_since = self.rests(now_ms()).map(ago).map_err(ago);
        rests_since.and_then(|since| if self.is_upgraded.load(Ordering::SeqCst) { Err(since) } else { Ok(since) })
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
        f.debug_struct("Link").field("client", &self.client).field("orders", &self.orders).finish_non_exhaustive()
    }
}

const AWAITING: u64 = 0;
const RESTING: u64 = 1;
const BUSY: u64 = 2;
const PHASES: u64 = 3;

/// How long a request may take to arrive before the connection can be displaced.
const REQUEST_AWAITED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::connections::{Holder as _, Order};

    use super::Link;
    use crate::http::clock::now_ms;

    #[test]
    fn a_request_that_arrived_keeps_the_place() {
        let link = Link::new(None);
        assert!(link.rests(now_ms()).is_err(), "a request may be on its way");
        assert!(link.rests(now_ms() + 1_100) >= Ok(Duration::from_secs(1)));
        link.begin();
        assert!(link.rests(now_ms() + 60_000).is_err());
        link.rest(now_ms());
        link.order(Order::EndIfResting);
        assert!(link.gives_way());
        link.begin();
        link.rest(now_ms());
        assert!(!link.gives_way(), "the order is forgotten");
        link.order(Order::Finish);
        link.begin();
        assert!(link.is_finishing() && link.gives_way());
    }
}
