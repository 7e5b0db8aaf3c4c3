//! Software transactional memory: transactions over any number of variables, with a `retry` that
//! suspends the task.
//!
//! A [`TVar`] is a variable that is read and written only in transactions. [`atomically`] runs a
//! closure as one: its reads are consistent, its writes become visible at once, and it may wait for
//! any condition on its reads. There is no lock to forget and no order to keep, and two
//! transactions called inside a third one become part of it.
//!
//! ```
//! use dapple_stm::{StmResult, TVar, Tx, atomically_blocking};
//!
//! fn take(tx: &mut Tx, from: &TVar<u32>) -> StmResult<()> {
//!     let there = tx.read(from)?;
//!     tx.check(there > 0)?; // waits until there is an item
//!     tx.write(from, there - 1)
//! }
//!
//! let (left, right) = (TVar::new(1), TVar::new(2));
//! atomically_blocking(|tx| {
//!     take(tx, &left)?;
//!     take(tx, &right)
//! });
//! assert_eq!((left.load(), right.load()), (0, 1));
//! ```
//!
//! | purpose | use |
//! |---|---|
//! | run a transaction in a task, on any executor | [`atomically`], and `await` it |
//! | run it in a plain thread | [`atomically_blocking`] |
//! | run it in a callback, which must not wait | [`Atomically::now`] |
//! | wait for a condition | [`Tx::retry`], [`Tx::check`] |
//! | wait for one of two conditions | [`Tx::or_else`] |
//! | give up, with nothing written | [`atomically_or_abort`], [`Tx::nested`] |
//!
//! # When another tool is better
//!
//! A *color* (`Colored`) is better if one state has many users: no attempt fails, values need not
//! be cloned, and the closure runs once, so it may do input and output. A *mutex* is better for a
//! few instructions on state with an obvious lock order. STM is better if an operation touches
//! several small variables that differ each time, waits for a condition on several of them, or is
//! composed of other operations. `docs/stm.md` has figures.
//!
//! Long transactions over variables that others write all the time fail often. After 64 failures
//! one runs alone on a serial path; it always ends, but blocks all others from the variables it has
//! touched. No closure should block or run for long.

#![forbid(unsafe_code)]

mod atomically;
mod core;
mod gate;
mod log;
mod pool;
mod running;
mod shared;
mod signal;
mod stop;
mod sync;
mod tx;
mod var;
mod wait;
mod word;

pub use atomically::{Atomically, AtomicallyOrAbort, atomically, atomically_blocking, atomically_or_abort};
pub use stop::{Abort, StmResult, Stop};
pub use tx::Tx;
pub use var::TVar;

/// For the models in `tests/`; not a part of the interface.
#[cfg(any(dapple_loom, dapple_shuttle))]
#[doc(hidden)]
pub mod model {
    /// Moves the clock to at least this version, as a transaction with many reads does.
    pub fn move_clock(version: u64) {
        crate::shared::move_clock(version);
    }
}
