//! A limit on how many do something at a time, and a bounded line of those who wait: [`Limit`].
//!
//! Everything in Dapple that waits for room does it by this: queues and sinks of `flow`, questions to event loops, credits
//! between stages, look-ups of names. [`Turns`] is the same without a lock, for state that has one.

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

/// Lets so many in at a time; the others wait in line, first come, first served. Clones are the same limit.
///
/// As a [`Semaphore`](super::Semaphore), and besides: the line has a bound, beyond which a newcomer is refused at once, the
/// number can be lowered as well as raised while permits are taken, and a wait is a type that can be named and polled.
///
/// **Fair**: a permit that is given back belongs to the first in line from that moment on; no newcomer overtakes. The place in
/// line is that of the first poll. **Deadlines**: a wait that is dropped leaves the line, so any timeout around it works.
/// **Panics**: a permit that unwinds is given back, and wakers that panic do not keep others from being woken.
///
/// A permit costs a lock that is held for some nanoseconds; one that is waited for costs the logarithm of how many wait.
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

/// One of those that a [`Limit`] lets in. Dropping it lets the next one in.
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit(Limit);

/// The future of [`Limit::acquire`].
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire {
    limit: Limit,
    turn: Turn,
}

/// The reason why a [`Limit`] gave no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// As many wait as may. Try again when some of them have had their time.
    Full {
        /// How many wait.
        waiting: usize,
    },
    /// The limit was closed: there will be no more permits.
    Closed,
}

impl Limit {
    /// Lets `max` in at a time, with a line without a bound: give it one by [`waiting_max`](Self::waiting_max) where others
    /// than the program itself decide how many come.
    pub fn new(max: usize) -> Limit {
        Limit(Arc::new(Mutex::new(Turns::new(max))))
    }

    /// The same, with at most so many in line. A line that is longer already stays.
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
    /// Cancel safe: if it is dropped, it leaves the line, and a permit that it was granted goes to the next.
    pub fn acquire(&self) -> Acquire {
        Acquire { limit: self.clone(), turn: Turn::default() }
    }

    /// Takes a permit, if one is free that nobody waits for.
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

    /// Changes how many may be in at a time. Permits that are taken stay taken, so fewer than none may be left for a while.
    ///
    /// ```
    /// let limit = dapple_sync::sync::limit::Limit::new(0);
    /// limit.set_max(1);
    /// assert!(limit.try_acquire().is_some());
    /// ```
    pub fn set_max(&self, max: usize) {
        self.change(|turns| turns.set_max(max));
    }

    /// Refuses all who wait, and all who come.
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

    /// How many may be in at a time.
    pub fn max(&self) -> usize {
        self.lock().max()
    }

    /// How many are in, or were let in and have not looked yet.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    /// How many wait.
    pub fn waiting_len(&self) -> usize {
        self.lock().waiting_len()
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        // No code of others runs under it.
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
        // To clone a waker is code of others: before the lock.
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
