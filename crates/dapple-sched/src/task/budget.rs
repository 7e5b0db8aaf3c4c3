//! The budget of a poll: the number of its awaits that may be ready at once before it has to yield.
//!
//! A task with awaits that are all ready would never return to its worker: other tasks, timers and
//! events would wait for ever. So each poll of a task has a budget of [`BUDGET`] such awaits, and
//! each one that is ready at once spends one. When none is left, the next await wakes its task and
//! returns `Pending`, and the task goes to the end of its queue, as by
//! [`yield_now`](crate::yield_now).
//!
//! Only polls of tasks, and of futures that `block_on` drives, have a budget; callbacks and other
//! executors have none. A poll may contain another executor, or poll a future with a waker that
//! does nothing. So an await is refused only if its waker reaches the task that is polled here.
//!
//! | `left` | meaning |
//! |---|---|
//! | up to [`BUDGET`] | the number left; negative: the number of awaits refused since |
//! | above | no limit; [`UNLIMITED`] minus the awaits that were ready |

use std::future::Future;
use std::pin::Pin;
use std::ptr;
// Not the models' atomics: one thread writes the number, another reads it for reports, and nothing
// depends on it.
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use crate::runtime::block_on::Parker;
use crate::runtime::context;
use crate::task::wake_if_polled;

/// The budget of the poll that a thread is in.
pub(crate) struct Budget {
    /// The thread writes it, and the monitor reads it.
    left: AtomicI64,
    /// The parker of a thread in `block_on`; null for a worker. It outlives the budget.
    parker: AtomicPtr<Parker>,
}

impl Budget {
    /// A worker's budget.
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

    /// Begins the poll of a task.
    #[inline]
    pub(crate) fn begin(&self) {
        // Relaxed, here and below: one thread writes it; for other readers it is a hint.
        self.left.store(BUDGET, Relaxed);
    }

    /// Ends it: no budget until the next poll of a task.
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

/// Runs the poll of a task inside other work of this thread, which then goes on with its own
/// budget.
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

/// Calls `drive`, which drives a future on a thread that is not a worker, with a budget for that
/// thread.
pub(crate) fn with_own<R>(parker: &Parker, drive: impl FnOnce(&Budget) -> R) -> R {
    let budget = Budget { parker: AtomicPtr::new(ptr::from_ref(parker).cast_mut()), ..Budget::new() };
    context::in_budget(&budget, || drive(&budget))
}

/// Spends one ready await of this thread's current poll. If none is left, wakes the task and
/// returns `Pending`.
///
/// For hand-written futures in libraries for Dapple. Call it when the future is about to return
/// `Ready` without having waited, before it takes its result; if this returns `Pending`, return
/// `Pending`. [`budgeted`] does this for an existing future.
///
/// Never returns `Pending` outside of a task and of `block_on`. Cost: some nanoseconds.
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

/// Polls by a function, and spends one ready await if it is ready; [`poll_budget`] for code that
/// cannot tell before it polls. If none is left, polls nothing, wakes the task and returns
/// `Pending`.
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
            // It waits, so no ready await was spent.
            budget.left.store(budget.left() + 1, Relaxed);
        }
        polled
    })
}

#[cold]
fn refuse(budget: &Budget, left: i64, cx: &Context<'_>) -> Poll<()> {
    if left <= -REFUSALS_MAX {
        // The task was woken before, but the code that polls here does not return to the worker:
        // for example another executor that waits for just this future. It would wait for ever.
        budget.begin();
        return Poll::Ready(());
    }
    if !wake_if_polled(cx.waker()) {
        cx.waker().wake_by_ref();
    }
    // If the waker does not lead to the task, it belongs to an executor inside the task, or does
    // nothing.
    if budget.is_woken() { Poll::Pending } else { Poll::Ready(()) }
}

/// Spends one ready await, and yields if none is left: for a loop that might never wait, and
/// contains no await of Dapple's.
///
/// Unlike [`yield_now`](crate::yield_now), which yields every time, it costs some nanoseconds.
///
/// Cancel safety: dropping it loses nothing.
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

/// The same future, but it yields when the budget of the poll is used up; see [`poll_budget`]. For
/// futures of libraries that do not know of budgets.
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

/// The same future, polled without a budget: none of its awaits is refused, and other tasks wait
/// until it waits.
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

/// The budget of a thread that is not a worker and drives nothing.
pub(crate) const NO_BUDGET: *const Budget = ptr::null();

/// The same as tokio's.
const BUDGET: i64 = if cfg!(any(dapple_loom, dapple_shuttle)) { 4 } else { 128 };

/// A poll with this many refusals does not react to them. A combinator may poll as many futures in
/// one call; then some of them are not refused.
const REFUSALS_MAX: i64 = 1_024;

/// More than any poll can spend.
const UNLIMITED: i64 = i64::MAX / 2;
