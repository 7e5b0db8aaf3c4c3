//! Public behavior of `dapple-tower`.

mod admission;
mod balance;
mod buffer;
mod executors;
mod middleware;
mod retry;
mod throttle;
mod throttled_sink;
