//! Reading a state in parallel with other readers (C5).

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::color::Priority;
use crate::hold::held::Held;
use crate::hold::request::{self, Ask, Member};
use crate::runtime::context;
use crate::state::colored::{Colored, TryWithError, may_block, panic_refused};
use crate::state::wait::{self, Wait};

/// A state in a [`when`](crate::when()), for reading; see [`Colored::reading`].
pub struct Reading<'a, T> {
    pub(crate) state: &'a Colored<T>,
}

impl<T> Clone for Reading<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reading<'_, T> {}

impl<T> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(self.state).finish()
    }
}

impl<T: Send + Sync + 'static> Colored<T> {
    /// Runs a closure on the value while its color is held for reading, in the awaiting task's own
    /// poll. Readers of one color run in parallel, on as many workers as there are; a writer runs
    /// alone. The closure that came first goes first, so neither side starves (C5): a reader that
    /// comes after a writer waits for it.
    ///
    /// It runs at once if nothing waits in the color and the color is free or only read; otherwise
    /// when the color reaches this request. Lazy, works from any executor, and may borrow the
    /// task's locals, as [`Colored::with`]. Inside a closure that has the color already, it runs in
    /// line.
    ///
    /// Worth it for closures of more than a few hundred nanoseconds: entering and leaving take the
    /// color's lock.
    ///
    /// Cancel safety: as [`Colored::with`].
    ///
    /// # Panics
    /// When awaited: if the value is poisoned. A panic in the closure unwinds into the caller; it
    /// poisons nothing, because the closure could not change the value.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, spawn};
    ///
    /// let table = Colored::new(vec![3, 1, 2]);
    /// let tasks = [0, 1, 2].map(|row| {
    ///     let table = table.clone();
    ///     spawn(async move { table.read(|table| table[row]).await })
    /// });
    /// let sum = runtime.block_on(async {
    ///     let mut sum = 0;
    ///     for task in tasks {
    ///         sum += task.await.unwrap();
    ///     }
    ///     sum
    /// });
    /// assert_eq!(sum, 6);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn read<R, F: FnOnce(&T) -> R>(&self, f: F) -> Read<'_, T, F, R> {
        Read { state: self, closure: Some(f), wait: Wait::new(), result: PhantomData }
    }

    /// Queues a closure to run on the value while its color is held for reading. Eager; has no
    /// result. It has a place in the order of the color, and runs in parallel with other readers.
    ///
    /// Cost: more than [`Colored::post`], because it runs in a fresh color of its own: use it for
    /// long closures.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let words = Colored::new(vec!["one", "two"]);
    /// words.post_read(move |words| tx.send(words.len()).unwrap());
    /// assert_eq!(rx.recv().unwrap(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn post_read<F: FnOnce(&T) + Send + 'static>(&self, f: F) {
        let state = self.clone();
        let color = self.color();
        let origin = Location::caller();
        let member = Member::new(color.alive(), true, Ask { priority: Priority::NORMAL, origin });
        let closure = move |held: Held<'_>| state.access_read(held, f);
        // SAFETY: our handle keeps the color alive.
        unsafe { request::submit_closure([member], origin, closure, |_| (color.shared(), color.alive().is_pinned())) };
    }

    /// Runs a closure on the value now, if nothing waits in the color and the color is free or only
    /// read, or if the running callback already holds it.
    ///
    /// # Errors
    /// [`TryWithError`]; the closure has not run.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, TryWithError};
    ///
    /// let state = Colored::new(1);
    /// // Readers do not exclude each other.
    /// assert_eq!(state.try_read(|a| state.try_read(|b| a + b)), Ok(Ok(2)));
    /// assert_eq!(state.try_read(|_| state.try_with(|n| *n += 1)), Ok(Err(TryWithError::Busy)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_read<R, F: FnOnce(&T) -> R>(&self, f: F) -> Result<R, TryWithError> {
        if self.is_poisoned() {
            return Err(TryWithError::Poisoned);
        }
        let run = |held: Held<'_>| {
            let value = self.view(held)?;
            Ok(context::in_state(self.made_from(), || f(&value)))
        };
        wait::hold_now(self.color().alive(), true, Location::caller(), run).unwrap_or(Err(TryWithError::Busy))
    }

    /// As [`Colored::read`], for plain threads: blocks until the color reaches the request.
    ///
    /// # Panics
    /// As [`Colored::with_blocking`] and [`Colored::read`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let name = Colored::new(String::from("Ann"));
    /// assert_eq!(name.read_blocking(|name| name.len()), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn read_blocking<R, F: FnOnce(&T) -> R>(&self, f: F) -> R {
        may_block();
        crate::block_on(self.read(f))
    }

    /// This state, for reading, as a part of a [`when`](crate::when()).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, when};
    ///
    /// let (prices, total) = (Colored::new(vec![3, 4]), Colored::new(0));
    /// runtime.block_on(when((prices.reading(), &total)).with(|(prices, total)| *total = prices.iter().sum()));
    /// assert_eq!(total.with_blocking(|total| *total), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reading(&self) -> Reading<'_, T> {
        Reading { state: self }
    }

    /// Runs the closure on the value, which it cannot change.
    fn access_read<R>(&self, held: Held<'_>, f: impl FnOnce(&T) -> R) -> R {
        let value = self.view(held).unwrap_or_else(|error| panic_refused(self.color(), error));
        context::in_state(self.made_from(), || f(&value))
    }
}

/// The future of [`Colored::read`].
#[must_use = "a `read` does nothing until it is awaited; `post_read` is the eager form"]
pub struct Read<'a, T, F, R> {
    state: &'a Colored<T>,
    closure: Option<F>,
    wait: Wait,
    result: PhantomData<fn() -> R>,
}

// The closure is never pinned: the call moves it out.
impl<T, F, R> Unpin for Read<'_, T, F, R> {}

impl<T: Send + Sync + 'static, F: FnOnce(&T) -> R, R> Future for Read<'_, T, F, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let Read { state, closure, wait, .. } = &mut *self;
        let mut closure = || closure.take().expect("a `read` is not polled again after it was ready");
        wait.poll_one(state.color().alive(), true, cx, |held| state.access_read(held, closure()))
    }
}

impl<T, F, R> fmt::Debug for Read<'_, T, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").field("color", self.state.color()).field("queued", &self.wait.is_queued()).finish()
    }
}
