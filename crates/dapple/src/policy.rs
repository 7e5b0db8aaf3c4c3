//! Which runnable color goes first: priorities, and policies of a program's own.

#[doc(inline)]
pub use dapple_sched::{Policy, Priority, Runnable, RunnableKey, SeededRandom};
