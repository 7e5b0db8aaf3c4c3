//! Public behavior of `dapple-stage`.

mod admission;
mod balance;
mod deadline;
mod executors;
mod retry;
//! Stages, from outside.

mod stage;
#[cfg(feature = "remote")]
mod remote;
