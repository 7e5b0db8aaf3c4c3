//! Runs transactions attempt by attempt: as a future, in a plain thread, or without waiting.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::gate::{Pass, QueuePass};
use crate::shared;
use crate::stop::{Abort, Kind, StmResult, Stop};
use crate::sync::{ATTEMPTS, on_worker, poll_budget, rest};
use crate::tx::Tx;
use crate::wait::Wait;

/// Runs `f` as a transaction: all its reads are consistent, and all its writes become visible at
/// once.
///
/// `f` runs until an attempt succeeds, so it should only read and write variables, and compute: a
/// message that it prints may be printed twice. When it [retries](Tx::retry), the task waits, and
/// its worker does other work meanwhile. The result is a future; use
/// [`blocking`](Atomically::blocking) instead of `await` in plain threads, and
/// [`now`](Atomically::now) in callbacks.
///
/// Nothing happens before the first poll. The future is cancel safe: if it is dropped, the
/// transaction has happened as a whole, in the poll that was ready, or not at all. It runs on any
/// executor. After conflicts it yields its worker from time to time, and after 64 of them it queues
/// for the serial path, where it cannot fail.
///
/// # Panics
///
/// A panic of `f` leaves all variables unchanged, and reaches the poller. A transaction inside `f`
/// panics; call functions that take `&mut Tx` instead, or [`Tx::nested`]. A retry before any read
/// panics, too, and so does a poll of the future after it was ready.
///
/// ```
/// use dapple_stm::{TVar, atomically};
///
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # runtime.block_on(async {
/// let seats = TVar::new(1);
/// let booked = atomically(|tx| {
///     let free = tx.read(&seats)?;
///     tx.check(free > 0)?; // waits for a free seat
///     tx.write(&seats, free - 1)?;
///     Ok(free)
/// });
/// assert_eq!(booked.await, 1);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn atomically<T, F: FnMut(&mut Tx) -> StmResult<T>>(f: F) -> Atomically<F> {
    Atomically { f, progress: Progress::default() }
}

/// As [`atomically`], for a transaction that may give up: when `f` fails with [`Abort::Error`],
/// nothing is written, and the error is the result. Cancel safe, too.
///
/// ```
/// use dapple_stm::{Abort, TVar, atomically_or_abort};
///
/// let balance = TVar::new(5);
/// let outcome = atomically_or_abort(|tx| {
///     tx.modify(&balance, |balance| balance - 9)?;
///     if tx.read(&balance)? < 0 { Err(Abort::Error("too little")) } else { Ok(()) }
/// });
/// assert_eq!((outcome.blocking(), balance.load()), (Err("too little"), 5));
/// ```
pub fn atomically_or_abort<T, E, F: FnMut(&mut Tx) -> Result<T, Abort<E>>>(f: F) -> AtomicallyOrAbort<F> {
    AtomicallyOrAbort { f, progress: Progress::default() }
}

/// [`atomically`] in a plain thread: blocks it while the transaction waits.
///
/// # Panics
///
/// On a worker, which must not block: `await` the future there, or use [`Atomically::now`]. Also as
/// [`atomically`].
///
/// ```
/// use dapple_stm::{TVar, atomically_blocking};
///
/// let number = TVar::new(1);
/// assert_eq!(atomically_blocking(|tx| tx.replace(&number, 2)), 1);
/// ```
pub fn atomically_blocking<T>(f: impl FnMut(&mut Tx) -> StmResult<T>) -> T {
    atomically(f).blocking()
}

/// A transaction to run: the future of [`atomically`].
#[must_use = "a transaction does nothing until it is awaited"]
pub struct Atomically<F> {
    f: F,
    progress: Progress,
}

/// A transaction to run that may give up: the future of [`atomically_or_abort`].
#[must_use = "a transaction does nothing until it is awaited"]
pub struct AtomicallyOrAbort<F> {
    f: F,
    progress: Progress,
}

// The closure is never pinned: it is called by reference.
impl<F> Unpin for Atomically<F> {}
impl<F> Unpin for AtomicallyOrAbort<F> {}

impl<F> fmt::Debug for Atomically<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomically").field("failures", &self.progress.failures).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for AtomicallyOrAbort<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicallyOrAbort").field("failures", &self.progress.failures).finish_non_exhaustive()
    }
}

impl<T, F: FnMut(&mut Tx) -> StmResult<T>> Atomically<F> {
    /// Runs the transaction in the current thread, and blocks the thread while the transaction
    /// waits.
    ///
    /// # Panics
    ///
    /// As [`atomically_blocking`].
    ///
    /// ```
    /// let number = dapple_stm::TVar::new(1);
    /// assert_eq!(dapple_stm::atomically(|tx| tx.read(&number)).blocking(), 1);
    /// ```
    pub fn blocking(mut self) -> T {
        let f = &mut self.f;
        certain(self.progress.block(&mut |tx| f(tx).map_err(Abort::Stop)))
    }

    /// Runs the transaction in the current thread if it need not wait; `None` if it retries. For
    /// callbacks.
    ///
    /// After 64 conflicts it takes the serial path. A plain thread waits for its turn there, after
    /// other transactions, which run but do not wait. A worker must not wait: there the result is
    /// `None`, too, if another transaction is on that path. Await the future if that matters.
    ///
    /// # Panics
    ///
    /// As [`atomically`].
    ///
    /// ```
    /// use dapple_stm::{TVar, atomically};
    ///
    /// let free = TVar::new(0);
    /// assert_eq!(atomically(|tx| { let now = tx.read(&free)?; tx.check(now > 0) }).now(), None);
    /// ```
    pub fn now(mut self) -> Option<T> {
        let f = &mut self.f;
        self.progress.now(&mut |tx| f(tx).map_err(Abort::Stop)).map(certain)
    }
}

impl<T, E, F: FnMut(&mut Tx) -> Result<T, Abort<E>>> AtomicallyOrAbort<F> {
    /// As [`Atomically::blocking`].
    ///
    /// # Errors
    ///
    /// The error with which the closure gave up.
    ///
    /// # Panics
    ///
    /// As [`atomically_blocking`].
    ///
    /// ```
    /// use dapple_stm::{Abort, atomically_or_abort};
    ///
    /// assert_eq!(atomically_or_abort(|_| Err::<(), _>(Abort::Error("no"))).blocking(), Err("no"));
    /// ```
    pub fn blocking(mut self) -> Result<T, E> {
        self.progress.block(&mut self.f)
    }

    /// As [`Atomically::now`].
    ///
    /// # Panics
    ///
    /// As [`atomically`].
    ///
    /// ```
    /// use dapple_stm::{Abort, atomically_or_abort};
    ///
    /// assert_eq!(atomically_or_abort(|_| Err::<(), _>(Abort::Error("no"))).now(), Some(Err("no")));
    /// ```
    pub fn now(mut self) -> Option<Result<T, E>> {
        self.progress.now(&mut self.f)
    }
}

impl<T, F: FnMut(&mut Tx) -> StmResult<T>> Future for Atomically<F> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Atomically { f, progress } = self.get_mut();
        progress.poll(&mut |tx| f(tx).map_err(Abort::Stop), cx).map(certain)
    }
}

impl<T, E, F: FnMut(&mut Tx) -> Result<T, Abort<E>>> Future for AtomicallyOrAbort<F> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let AtomicallyOrAbort { f, progress } = self.get_mut();
        progress.poll(f, cx)
    }
}

fn certain<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// The progress of a transaction.
#[derive(Default)]
struct Progress {
    /// Attempts in a row that others made fail.
    failures: u32,
    stage: AttemptState,
}

#[derive(Default)]
enum AttemptState {
    /// The next attempt may begin.
    #[default]
    Ready,
    /// It waits for a variable to change.
    Waiting(Wait),
    /// It waits for the serial path.
    Queued(QueuePass),
    /// The next attempt is on the serial path.
    Serial(Pass),
    /// It is over; the future must not be polled again.
    Over,
}

/// The result of an attempt.
enum Attempt<R> {
    Done(R),
    /// Another transaction was faster.
    Conflict,
    /// It wants to wait; nothing it has read has changed.
    Retry(Wait),
    /// It wanted to wait, and a variable has changed already.
    Changed,
}

impl Progress {
    /// Makes an attempt. If it must wait, the stage says for what.
    #[inline]
    fn attempt<T, E>(&mut self, f: &mut impl FnMut(&mut Tx) -> Result<T, Abort<E>>) -> ControlFlow<Result<T, E>> {
        let pass = match std::mem::take(&mut self.stage) {
            AttemptState::Serial(pass) => Some(pass),
            _ => None,
        };
        match attempt(f, pass, self.failures) {
            Attempt::Done(result) => return ControlFlow::Break(result),
            Attempt::Retry(wait) => {
                self.failures = 0;
                self.stage = AttemptState::Waiting(wait);
            }
            Attempt::Changed => self.failures = 0,
            Attempt::Conflict => {
                self.failures += 1;
                if self.failures >= ATTEMPTS {
                    self.stage = AttemptState::Queued(shared::gate().queue());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn poll<T, E>(
        &mut self,
        f: &mut impl FnMut(&mut Tx) -> Result<T, Abort<E>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, E>> {
        if matches!(self.stage, AttemptState::Ready) && self.failures == 0 {
            ready!(poll_budget(cx));
        }
        loop {
            match &mut self.stage {
                AttemptState::Waiting(wait) => {
                    ready!(wait.poll(cx));
                    self.stage = AttemptState::Ready;
                }
                AttemptState::Queued(place) => {
                    let pass = ready!(place.poll(cx));
                    self.stage = AttemptState::Serial(pass);
                }
                AttemptState::Ready | AttemptState::Serial(_) => {}
                AttemptState::Over => {
                    panic!("a transaction is not polled again after it was ready: it would run once more")
                }
            }
            if let ControlFlow::Break(result) = self.attempt(f) {
                self.stage = AttemptState::Over;
                return Poll::Ready(result);
            }
            if matches!(self.stage, AttemptState::Ready) && self.failures % BURST == BURST - 1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn block<T, E>(&mut self, f: &mut impl FnMut(&mut Tx) -> Result<T, Abort<E>>) -> Result<T, E> {
        assert!(
            !on_worker(),
            "a transaction would block a worker: `await` it there, or use `now`, which does not wait"
        );
        loop {
            match std::mem::take(&mut self.stage) {
                AttemptState::Waiting(wait) => wait.wait(),
                AttemptState::Queued(place) => self.stage = AttemptState::Serial(place.wait()),
                stage => self.stage = stage,
            }
            if let ControlFlow::Break(result) = self.attempt(f) {
                return result;
            }
            self.rest();
        }
    }

    fn now<T, E>(&mut self, f: &mut impl FnMut(&mut Tx) -> Result<T, Abort<E>>) -> Option<Result<T, E>> {
        loop {
            if let ControlFlow::Break(result) = self.attempt(f) {
                return Some(result);
            }
            match std::mem::take(&mut self.stage) {
                AttemptState::Waiting(_) => return None,
                // Each transaction leaves the serial path after one attempt, so this waits only for
                // running code.
                AttemptState::Queued(place) if on_worker() => self.stage = AttemptState::Serial(place.take()?),
                AttemptState::Queued(place) => self.stage = AttemptState::Serial(place.wait()),
                stage => self.stage = stage,
            }
            self.rest();
        }
    }

    /// Lets other threads run, which may hold a needed lock.
    fn rest(&self) {
        if matches!(self.stage, AttemptState::Ready) && self.failures % BURST == BURST - 1 {
            rest(self.failures / BURST);
        }
    }
}

#[inline]
fn attempt<T, E>(
    f: &mut impl FnMut(&mut Tx) -> Result<T, Abort<E>>,
    pass: Option<Pass>,
    failures: u32,
) -> Attempt<Result<T, E>> {
    let mut tx = Tx::begin(pass);
    match f(&mut tx) {
        Ok(value) if tx.commit() => Attempt::Done(Ok(value)),
        Err(Abort::Error(error)) if !tx.is_doomed() => Attempt::Done(Err(error)),
        Err(Abort::Stop(Stop(Kind::Retry))) if !tx.is_doomed() => tx.wait().map_or(Attempt::Changed, Attempt::Retry),
        _ => {
            tx.fell_behind(failures);
            Attempt::Conflict
        }
    }
}

/// Attempts before other threads may have the core.
const BURST: u32 = 8;
