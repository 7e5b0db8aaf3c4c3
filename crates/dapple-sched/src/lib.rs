//! The scheduler of Dapple: colors, callbacks, tasks, run queues, workers and stealing, without any
//! I/O.
//!
//! *Write it as if it ran on one core.* Every callback and every task has a [`Color`]. Those of the
//! same color run one at a time, in order; those of different colors run in parallel, on one worker
//! per core. State that belongs to a color is a [`Colored`] value, which can be touched only while
//! its color is held.
//!
//! ```
//! use dapple_sched::{Color, Colored, Runtime, spawn};
//!
//! let runtime = Runtime::builder().build()?;
//! runtime.block_on(async {
//!     let words = Colored::new(Vec::new());
//!     let tasks = ["events", "threads", "colors"].map(|word| {
//!         let words = words.clone();
//!         spawn(async move { words.with(|words| words.push(word)).await })
//!     });
//!     for task in tasks {
//!         task.await.unwrap();
//!     }
//!     assert_eq!(words.with(|words| words.len()).await, 3);
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The invariants C1 to C10 and the vocabulary are in the project's ARCHITECTURE.md; the texts this
//! implements are libasync-mp (Zeldovich's thesis, MIT 2002; USENIX 2003) and "Combining events and
//! threads" (PLDI 2007).

#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(dapple_loom, dapple_shuttle, miri))))]

mod color;
pub mod environment;
mod hold;
mod memory;
mod observe;
mod post;
mod runtime;
mod state;
mod sync;
mod task;
mod worker;

#[cfg(any(dapple_loom, dapple_shuttle))]
pub mod model;

pub use color::{Color, PostError, Priority};
pub use observe::described::{Described, described};
pub use observe::dump::{
    ColorDump, ColorKind, ColorState, Dump, NamedDump, QueuedDump, RunningDump, TaskWait, TasksDump, WorkerDump,
};
pub use observe::label::Label;
pub use observe::named::{Named, named};
pub use observe::stats::{ColorStats, RuntimeStats, WorkerStats};
pub use observe::trace::{
    HasObserver, Observer, RequestNote, TraceEvent, TraceKind, is_observed, note_request, running_callback,
};
pub use post::callback::{Callback, Posted};
pub use runtime::block_on::block_on;
pub use runtime::closing::Closed;
pub use runtime::context::{count_time, on_worker};
pub use runtime::driver::{Barrier, Driver, Outside};
pub use runtime::enter::EnterGuard;
#[doc(hidden)]
pub use runtime::foreign;
pub use runtime::panics::PanicInfo;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
pub use runtime::stepped::{Step, Stepped};
#[cfg(feature = "switches")]
pub use runtime::switches::Switches;
pub use runtime::thread_context::ThreadContext;
pub use runtime::{Builder, Handle, Runtime, ShutdownReport};
pub use state::colored::{Colored, TryWithError, With};
pub use state::pinned::{Pinned, PinnedWith};
pub use state::reading::{Read, Reading};
pub use state::set::{ReadingColor, Set};
pub use state::when::{When, WithAll, when};
pub use sync::barrier::Membarrier;
pub use task::JoinHandle;
pub use task::abort::AbortHandle;
pub use task::budget::{
    Budgeted, ConsumeBudget, Unconstrained, budgeted, consume_budget, poll_budget, poll_budgeted, unconstrained,
};
pub use task::join_error::JoinError;
pub use task::yield_now::{YieldNow, yield_now};
pub use worker::monitor::{SlowCallback, Slowness};
pub use worker::policy::{Policy, Runnable, RunnableKey, SeededRandom};

use std::future::Future;

/// Starts a task with a separate color in the current runtime.
///
/// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
///
/// # Panics
/// If no runtime is current; see [`Handle::current`].
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let task = dapple_sched::spawn(async { dapple_sched::Color::current().is_default() });
/// assert_eq!(runtime.block_on(task).unwrap(), false);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Source
///
/// In the papers, callbacks without a color share the default one (C3). That color protected data
/// from parallel access in C++; in Rust `Send` does so.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Handle::current().spawn(future)
}

/// As [`spawn`], for a task that lives long and has frequent turns, such as a connection: if more
/// than 64 turns wait on this worker, the task starts on the worker with the shortest queue.
///
/// Two workers that both have a queue steal nothing from each other. So a server with connections
/// that all begin on one worker serves those on the other workers faster. Cost: that of [`spawn`],
/// and a read of each worker's length; if the task starts elsewhere, also a color and a post to
/// another worker, some 0.3 us.
///
/// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
///
/// # Panics
/// If no runtime is current; see [`Handle::current`].
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let task = dapple_sched::spawn_balanced(async { 6 * 7 });
/// assert_eq!(runtime.block_on(task).unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_balanced<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Handle::current().spawn_balanced(future)
}
