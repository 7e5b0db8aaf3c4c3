//! Public behavior of `dapple-stage`.

mod admission;
mod balance;
#[path = "../../../dapple-sched/tests/it/bombs.rs"]
mod bombs;
mod buffer;
#[path = "../../../dapple-sched/tests/it/clones.rs"]
mod clones;
mod deadline;
mod executors;
mod faults;
#[path = "../../../dapple-sched/tests/it/forget.rs"]
mod forget;
mod futures;
mod lines;
mod middleware;
mod operators;
#[cfg(feature = "remote")]
mod remote;
mod retry;
mod stage;
mod throttle;
mod throttled_sink;
