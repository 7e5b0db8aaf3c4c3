//! Structured tasks: groups, cancellation, and values that a task carries.
//!
//! | purpose | use |
//! |---|---|
//! | start tasks that must all be over when a function returns | [`Group::scope`] |
//! | the same, and stop at the first error | [`Group::try_scope`] |
//! | keep tasks in a field that ends them on drop | [`Group`] |
//! | bound how many tasks run at a time | [`Group::limited`] |
//! | ask tasks to end, each in its own time | [`CancellationToken`] |
//! | await the first of two futures | [`race()`] |
//! | end one task from elsewhere | [`AbortHandle`] |
//! | see a task in [dumps](dapple_sched::Handle::dump) and in reports of slow callbacks | [`named`] |
//! | yield in a loop that may never wait | [`yield_now`](dapple_sched::yield_now), or each 128th time [`consume_budget`] |
//! | give a future of another library the [budget](poll_budget) of a poll, or take it away | [`budgeted`], [`unconstrained`] |
//! | follow a request from program to program | [`traced`] |
//! | carry a value through a task without passing it on | [`task_local!`](crate::task_local) |
//!
//! Time limits are in `dapple::time`: `timeout(limit, Group::scope(…))` aborts the members after
//! the limit.
//!
//! A token *asks*: a task that awaits it decides when and how to end. A group *ends*: the futures
//! of its members are dropped at their current `.await`. [`Members::token`] connects both: it is
//! canceled with its group.

mod group;
mod local;
mod members;
mod nested;
mod race;
mod scope;
mod trace;
mod try_scope;

pub use dapple_sched::{
    AbortHandle, Budgeted, ConsumeBudget, JoinError, JoinHandle, Named, Unconstrained, budgeted, consume_budget, named,
    poll_budget, poll_budgeted, unconstrained,
};
pub use group::Group;
pub use local::{LocalKey, NoValue, WithLocal};
pub use members::{Members, TrySpawnError};
pub use race::{First, race};
#[doc(no_inline)]
pub use tokio_util::sync::{
    CancellationToken, DropGuard, DropGuardRef, WaitForCancellationFuture, WaitForCancellationFutureOwned,
};
pub use trace::{TraceContext, Traced, traced};
pub use try_scope::TryMembers;

/// [`Group`] under tokio's name, for programs that are being ported.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # #[allow(deprecated)]
/// runtime.block_on(async {
///     let set = dapple_sync::task::JoinSet::new();
///     // Unlike tokio's, `spawn` is awaited: a limited group waits for a place.
///     set.spawn(async { 6 * 7 }).await;
///     assert_eq!(set.join_next().await.unwrap().unwrap(), 42);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[deprecated(
    note = "Dapple's JoinSet is `dapple::task::Group`; await its `spawn`, which waits for a place if the group is limited"
)]
pub type JoinSet<T> = Group<T>;
