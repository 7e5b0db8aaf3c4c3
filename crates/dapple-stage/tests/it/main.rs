//! Public behavior of `dapple-stage`.

mod admission;
mod balance;
mod deadline;
mod executors;
#[cfg(feature = "remote")]
mod remote;
mod retry;
mod stage;
