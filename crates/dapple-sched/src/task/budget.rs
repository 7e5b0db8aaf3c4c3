//! The budget of a poll: how many awaits of it may be ready at once before it has to let others go.
//!
//! A task whose awaits are all ready would never return to its worker: other tasks, timers and events would wait for good. So
//! each poll of a task has [`BUDGET`] such awaits. Each that is ready at once spends one. When none is left, the next one
//! wakes its task and answers `Pending`, and the task goes to the end of its queue, as by [`yield_now`](crate::yield_now).
//!
//! Only polls of tasks, and of what `block_on` drives, have a budget. Callbacks have none, nor has another executor. Inside a
//! poll there may be another executor, or a look at a future with a waker that does nothing. Therefore an await is refused
//! only if its waker has reached the task that is polled here.
//!
//! | `left` | meaning |
//! |---|---|
//! | up to [`BUDGET`] | so many are left; negative: how often an await was refused since |
//! | above | there is no limit; [`UNLIMITED`] less what was ready |

use std::future::Future;
use std::pin::Pin;
use std::ptr;
// Not those of the models: one thread writes the number, another reads it for reports, and nothing depends on it.
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use crate::runtime::block_on::Parker;
use crate::runtime::context;
use crate::task::wake_if_polled;

/// What is left to the poll that a thread is in.
pub(crate) struct Budget {
    /// Written by the thread, and read by the monitor.
    left: AtomicI64,
    /// Of a thread that drives a future by `block_on`; null for a worker. It outlives the budget.
    parker: AtomicPtr<Parker>,
}

impl Budget {
    /// That of a worker.
    pub(crate) const fn new() -> Budget {
        Budget { left: AtomicI64::new(UNLIMITED), parker: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether the task, or the future of `block_on`, that this thread polls will be polled again.
    fn is_woken(&self) -> bool {
        // SAFETY: the parker outlives the budget.
        match unsafe { self.parker.load(Relaxed).as_ref() } {
            Some(parker) => parker.is_woken(),
            None => context::is_woken(),
        }
    }

    /// A poll of a task begins.
    #[inline]
    pub(crate) fn begin(&self) {
        // Relaxed, here and below: one thread writes it; who else reads it takes it for a hint.
        self.left.store(BUDGET, Relaxed);
    }

    /// What follows is no poll of a task.
    #[inline]
    pub(crate) fn end(&self) {
        self.left.store(UNLIMITED, Relaxed);
    }

    fn replace(&self, left: i64) -> i64 {
        let before = self.left.load(Relaxed);
        self.left.store(left, Relaxed);
        before
    }

    /// A number that changes with each await that is ready at once; for the monitor.
    pub(crate) fn left(&self) -> i64 {
        self.left.load(Relaxed)
    }
}

/// Runs a poll of a task inside whatever this thread does, which goes on with its own budget afterwards.
#[inline]
pub(super) fn in_poll<R>(poll: impl FnOnce() -> R) -> R {
    with_left(BUDGET, poll)
}

#[inline]
fn with_left<R>(left: i64, run: impl FnOnce() -> R) -> R {
    struct Restore<'a>(&'a Budget, i64);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.left.store(self.1, Relaxed);
        }
    }
    context::with_budget(|budget| {
        let _restore = budget.map(|budget| Restore(budget, budget.replace(left)));
        run()
    })
}

/// Calls `drive` with a budget of this thread, which is no worker, while it drives a future.
pub(crate) fn with_own<R>(parker: &Parker, drive: impl FnOnce(&Budget) -> R) -> R {
    let budget = Budget { parker: AtomicPtr::new(ptr::from_ref(parker).cast_mut()), ..Budget::new() };
    context::in_budget(&budget, || drive(&budget))
}

/// Spends one ready await of the poll that this thread is in. `Pending`, with the task woken: none is left.
///
/// For futures that are written by hand, in libraries that are to be used on Dapple: ask where the future is about to return
/// `Ready` without having waited, before it takes what it would return, and return `Pending` where this does.
/// [`budgeted`] does so for a future that exists.
///
/// It never says `Pending` outside of a task and of `block_on`. Cost: some nanoseconds.
///
/// ```
/// use std::collections::VecDeque;
/// use std::task::{Context, Poll, Waker, ready};
///
/// struct Queue {
///     values: VecDeque<u32>,
///     waits: Option<Waker>,
/// }
///
/// impl Queue {
///     fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
///         if self.values.is_empty() {
///             self.waits = Some(cx.waker().clone());
///             return Poll::Pending;
///         }
///         // Before a value is taken, which would be lost.
///         ready!(dapple_sched::poll_budget(cx));
///         Poll::Ready(self.values.pop_front().expect("it is not empty"))
///     }
/// }
///
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let mut queue = Queue { values: (0..1_000).collect(), waits: None };
/// let sum = runtime.block_on(async {
///     let mut sum = 0;
///     for _ in 0..1_000 {
///         sum += std::future::poll_fn(|cx| queue.poll_pop(cx)).await; // lets others go now and then
///     }
///     sum
/// });
/// assert_eq!(sum, 499_500);
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn poll_budget(cx: &Context<'_>) -> Poll<()> {
    context::with_budget(|budget| {
        let Some(budget) = budget else { return Poll::Ready(()) };
        let left = budget.left.load(Relaxed);
        budget.left.store(left - 1, Relaxed);
        if left > 0 { Poll::Ready(()) } else { refuse(budget, left, cx) }
    })
}

/// Polls by a function, and spends one ready await if that is ready; [`poll_budget`] for what cannot tell before it is polled.
/// `Pending`, with the task woken and nothing polled: none is left.
///
/// ```
/// use std::task::Poll;
///
/// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// let polled = runtime.block_on(std::future::poll_fn(|cx| {
///     dapple_sched::poll_budgeted(cx, |_cx| Poll::Ready(5)) // say, a method `poll_recv` of another library
/// }));
/// assert_eq!(polled, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn poll_budgeted<R>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
    context::with_budget(|budget| {
        ready!(poll_budget(cx));
        let polled = poll(cx);
        if polled.is_pending()
            && let Some(budget) = budget
        {
            // It waits: that is no await that was ready.
            budget.left.store(budget.left() + 1, Relaxed);
        }
        polled
    })
}

#[cold]
fn refuse(budget: &Budget, left: i64, cx: &Context<'_>) -> Poll<()> {
    if left <= -REFUSALS_MAX {
        // The task was woken before, and whatever polls here does not return to the worker: another executor, say, that
        // waits for just this future. It would wait for good.
        budget.begin();
        return Poll::Ready(());
    }
    if !wake_if_polled(cx.waker()) {
        cx.waker().wake_by_ref();
    }
    // A waker that leads elsewhere is that of an executor inside the task, or does nothing.
    if budget.is_woken() { Poll::Pending } else { Poll::Ready(()) }
}

/// Spends one ready await, and lets others go if none is left: for a loop that might never wait, and has no await of
/// Dapple's in it.
///
/// Unlike [`yield_now`](crate::yield_now), which lets others go each time, it costs some nanoseconds.
///
/// Cancel safety: nothing is lost by dropping it.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let sum = runtime.spawn(async {
///     let mut sum = 0;
///     for n in 0..10_000u64 {
///         sum += n; // … a part of a long computation …
///         dapple_sched::consume_budget().await;
///     }
///     sum
/// });
/// assert_eq!(runtime.block_on(sum).unwrap(), 49_995_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn consume_budget() -> ConsumeBudget {
    ConsumeBudget { _private: () }
}

/// The future of [`consume_budget`].
#[derive(Debug)]
#[must_use = "it does nothing until it is awaited"]
pub struct ConsumeBudget {
    _private: (),
}

impl Future for ConsumeBudget {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_budget(cx)
    }
}

/// The same future, but one that lets others go when the budget of the poll is used up; see [`poll_budget`]. For futures of
/// libraries that know nothing of it.
///
/// Cancel safety: as the future inside.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// // A channel of another library that always has a value would keep the worker; this does not.
/// let value = runtime.block_on(dapple_sched::budgeted(async { 7 }));
/// assert_eq!(value, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn budgeted<F: Future>(future: F) -> Budgeted<F> {
    Budgeted { future }
}

/// The future of [`budgeted`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Budgeted<F> {
    future: F,
}

impl<F: Future> Future for Budgeted<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned: never moved out, and there is no `Drop`.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        poll_budgeted(cx, |cx| future.poll(cx))
    }
}

/// The same future, polled without a budget: no await of it is refused. Others then wait until it waits.
///
/// Cancel safety: as the future inside.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::{Colored, unconstrained};
///
/// let state = Colored::new(0);
/// let task = runtime.spawn(unconstrained(async move {
///     for _ in 0..1_000 {
///         state.with(|n| *n += 1).await; // one poll, as long as no other task has the state
///     }
///     state.with(|n| *n).await
/// }));
/// assert_eq!(runtime.block_on(task).unwrap(), 1_000);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn unconstrained<F: Future>(future: F) -> Unconstrained<F> {
    Unconstrained { future }
}

/// The future of [`unconstrained`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Unconstrained<F> {
    future: F,
}

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned: never moved out, and there is no `Drop`.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        with_left(UNLIMITED, || future.poll(cx))
    }
}

/// What a thread has that is no worker and drives nothing.
pub(crate) const NO_BUDGET: *const Budget = ptr::null();

/// As many as tokio has.
const BUDGET: i64 = if cfg!(any(dapple_loom, dapple_shuttle)) { 4 } else { 128 };

/// A poll that was refused so often does not end by that. A combinator may well poll as many futures in one go, and then
/// some of them are not refused.
const REFUSALS_MAX: i64 = 1_024;

/// No poll comes to the end of it.
const UNLIMITED: i64 = i64::MAX / 2;
