//! Public behavior of `dapple-stage`.

mod admission;
mod balance;
mod buffer;
mod deadline;
mod executors;
mod middleware;
mod operators;
#[cfg(feature = "remote")]
mod remote;
mod retry;
mod stage;
mod throttle;
mod throttled_sink;
