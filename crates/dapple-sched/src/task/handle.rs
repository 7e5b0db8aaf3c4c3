//! Waiting for a task, or detaching it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, ready};

use super::{DONE, FAILED, JOINED, TaskRef, poll_joined};
use crate::color::Color;
use crate::sync::atomic::Ordering::*;
use crate::task::abort::AbortHandle;
use crate::task::budget::poll_budget;
use crate::task::join_error::JoinError;

/// Waits for a task: a future with the task's result, or the reason why there is none.
///
/// Dropping the handle detaches the task, which runs on.
///
/// Cancel safety: a `&mut JoinHandle` can be dropped and awaited again; the result is not lost.
///
/// ```
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let sum = runtime.spawn(async { 1 + 2 });
/// assert_eq!(runtime.block_on(sum).unwrap(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JoinHandle<T> {
    pub(super) task: TaskRef,
    /// Whether the result has been taken from the task.
    pub(super) taken: bool,
    pub(super) output: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    /// Asks the task to end: its color drops the future in its next turn. A task that has finished
    /// keeps its result.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// task.abort();
    /// assert!(runtime.block_on(task).unwrap_err().is_aborted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn abort(&self) {
        self.task.abort();
    }

    /// A handle that only aborts the task and can be kept apart from this one; there is an example
    /// at [`AbortHandle`].
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.task.clone())
    }

    /// Ready when the task has ended; the result stays for an await of the handle. Only the waker
    /// of the last poll is kept, of this function or of an await.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async { 7 });
    /// runtime.block_on(std::future::poll_fn(|cx| task.poll_finished(cx)));
    /// assert_eq!(runtime.block_on(task).unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn poll_finished(&self, cx: &mut Context<'_>) -> Poll<()> {
        poll_joined(&self.task, cx)
    }

    /// Whether the task has ended and its result is available without waiting.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async {});
    /// while !task.is_finished() {
    ///     std::thread::yield_now();
    /// }
    /// assert!(runtime.block_on(task).is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.task.is_done()
    }

    /// The color of the task.
    pub fn color(&self) -> &Color {
        self.task.color()
    }
}

impl<T: Send + 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.poll_finished(cx).is_pending() {
            return Poll::Pending;
        }
        ready!(poll_budget(cx));
        assert!(!self.taken, "a join handle is not polled again after it was ready");
        self.taken = true;
        let mut output: Option<Result<T, JoinError>> = None;
        let task = self.task.task();
        // Relaxed: DONE was seen, and FAILED is set with it.
        let failed = task.header().state.load(Relaxed) & FAILED != 0;
        // SAFETY: `T` is the output of the task's future (see `spawn`); DONE gives the output to
        // this one handle, which takes it once.
        unsafe { (task.vtable().take)(task, failed, Some(NonNull::from(&mut output).cast())) };
        Poll::Ready(output.expect("`take` moves it there"))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let header = self.task.header();
        // AcqRel: acquires the output if the task is done.
        let state = header.state.fetch_and(!JOINED, AcqRel);
        // The joiner's waker may be all that keeps the joiner alive. The waker is dropped now, not
        // with the task, so that the end of a task does not end a chain of others recursively.
        let joiner = header.side().and_then(|side| side.joiner.lock().take());
        drop(joiner);
        if state & DONE != 0 && !self.taken {
            // SAFETY: DONE came first, so the output is ours.
            unsafe { (self.task.task().vtable().take)(self.task.task(), state & FAILED != 0, None) };
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("color", self.color()).field("finished", &self.is_finished()).finish()
    }
}
