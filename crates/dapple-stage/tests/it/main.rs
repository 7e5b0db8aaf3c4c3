//! Public behavior of `dapple-stage`.

mod admission;
mod balance;
mod buffer;
mod commit_kills;
mod deadline;
mod executors;
mod middleware;
mod operators;
mod processes;
#[cfg(feature = "remote")]
mod remote;
mod retry;
mod stage;
mod throttle;
