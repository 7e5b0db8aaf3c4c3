//! A limit on concurrent use, with a bounded waiting line: [`Limit`].
//!
//! All waits for room in Dapple use it: queues and sinks of `flow`, requests to event loops,
//! credits between stages, name lookups. [`Turns`] is the same without a lock, for state that has
//! one.

mod turns;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sched::foreign::KeptWaker;
use dapple_sched::poll_budgeted;

pub use self::turns::{Turn, Turns, Wakers};
use crate::switch::{Mutex, MutexGuard};

/// Admits this many at a time; the others queue, first come, first served. Clones are the same
/// limit.
///
/// It differs from a [`Semaphore`](super::Semaphore) in three ways: the line has a bound, beyond
/// which a newcomer is refused at once; the number can be lowered as well as raised while permits
/// are taken; and a wait has a type that can be named and polled.
///
/// **Fair**: a returned permit belongs to the first waiter from that moment on; no newcomer
/// overtakes. A future takes its position in the queue at its first poll. **Deadlines**: a dropped
/// wait leaves the line, so any timeout around it works. **Panics**: a permit that unwinds is given
/// back, and a waker that panics does not keep others from being woken.
///
/// A permit costs a lock that is held for some nanoseconds; a wait costs the logarithm of the
/// length of the line.
///
/// ```
/// use dapple_sync::sync::limit::{Limit, LimitError};
///
/// dapple_sched::block_on(async {
///     let limit = Limit::new(1).waiting_max(0);
///     let permit = limit.acquire().await?;
///     assert_eq!(limit.acquire().await.unwrap_err(), LimitError::Full { waiting: 0 });
///     drop(permit);
///     assert!(limit.try_acquire().is_some());
///     Ok::<_, LimitError>(())
/// })?;
/// # Ok::<(), dapple_sync::sync::limit::LimitError>(())
/// ```
#[derive(Clone)]
pub struct Limit(Arc<Mutex<Turns>>);

/// A permit of a [`Limit`]. Dropping it admits the next one.
#[must_use = "a dropped permit is given back at once"]
pub struct Permit(Limit);

/// The future of [`Limit::acquire`].
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire {
    limit: Limit,
    turn: Turn,
}

/// Why a [`Limit`] gave no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// The line is full. Retry after some of the waiters have been served.
    Full {
        /// The length of the line.
        waiting: usize,
    },
    /// The limit was closed: there will be no more permits.
    Closed,
}

impl Limit {
    /// Admits `max` at a time, with an unbounded line. Set a bound with
    /// [`waiting_max`](Self::waiting_max) if the number of callers is not the program's choice.
    pub fn new(max: usize) -> Limit {
        Limit(Arc::new(Mutex::new(Turns::new(max))))
    }

    /// Bounds the line. A line that is already longer stays.
    pub fn waiting_max(self, waiting_max: usize) -> Limit {
        self.lock().set_waiting_max(waiting_max);
        self
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// The line is full, or the limit is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping it leaves the line, and passes a granted permit to the next.
    pub fn acquire(&self) -> Acquire {
        Acquire { limit: self.clone(), turn: Turn::default() }
    }

    /// Takes a free permit, if no other waits for one.
    ///
    /// ```
    /// let limit = dapple_sync::sync::limit::Limit::new(1);
    /// let permit = limit.try_acquire();
    /// assert!(permit.is_some() && limit.try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<Permit> {
        let is_taken = self.lock().try_take();
        is_taken.then(|| Permit(self.clone()))
    }

    /// Changes the number of permits. Taken permits stay taken, so for a while more may be taken
    /// than exist.
    ///
    /// ```
    /// let limit = dapple_sync::sync::limit::Limit::new(0);
    /// limit.set_max(1);
    /// assert!(limit.try_acquire().is_some());
    /// ```
    pub fn set_max(&self, max: usize) {
        self.change(|turns| turns.set_max(max));
    }

    /// Refuses all waiters and newcomers.
    ///
    /// ```
    /// use dapple_sync::sync::limit::{Limit, LimitError};
    ///
    /// let limit = Limit::new(1);
    /// limit.close();
    /// assert_eq!(dapple_sched::block_on(limit.acquire()).unwrap_err(), LimitError::Closed);
    /// ```
    pub fn close(&self) {
        self.change(Turns::close);
    }

    /// The number of permits.
    pub fn max(&self) -> usize {
        self.lock().max()
    }

    /// The permits taken, or granted to waiters that have not polled since.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    /// The length of the line.
    pub fn waiting_len(&self) -> usize {
        self.lock().waiting_len()
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // No foreign code runs under it.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Turns) -> Wakers) {
        let wakers = change(&mut self.lock());
        wakers.run();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.change(|turns| turns.give_back(1));
    }
}

impl Future for Acquire {
    type Output = Result<Permit, LimitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_budgeted(cx, |cx| self.poll_take(cx))
    }
}

impl Acquire {
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, LimitError>> {
        if !self.turn.is_some() && self.limit.lock().try_take() {
            return Poll::Ready(Ok(Permit(self.limit.clone())));
        }
        // Cloning a waker is foreign code: do it before the lock.
        let waker = KeptWaker::from(cx.waker());
        let (poll, wakers) = self.limit.lock().poll_take(&mut self.turn, waker);
        wakers.run();
        poll.map_ok(|()| Permit(self.limit.clone()))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if self.turn.is_some() {
            let wakers = self.limit.lock().leave(&mut self.turn);
            wakers.run();
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Full { waiting } => write!(f, "the limit is reached, and {waiting} wait already; retry later"),
            LimitError::Closed => f.write_str("the limit is closed"),
        }
    }
}

impl Error for LimitError {}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.lock();
        f.debug_struct("Limit")
            .field("max", &turns.max())
            .field("used", &turns.used())
            .field("waiting", &turns.waiting_len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.0).finish()
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("limit", &self.limit).field("turn", &self.turn).finish()
    }
}
