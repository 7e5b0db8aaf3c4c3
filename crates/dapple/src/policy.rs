//! The choice of the next runnable color: priorities, and a program's own policies.

#[doc(inline)]
pub use dapple_sched::{Policy, Priority, Runnable, RunnableKey, SeededRandom};
