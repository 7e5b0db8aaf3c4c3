//! tower's middleware, balance, throttles and admission control, for any executor: nothing here needs a reactor.
//!
//! | module | has |
//! |---|---|
//! | [`middleware`] | time-outs, limits, retries, buffers |
//! | [`balance`] | one service of many replicas |
//! | [`throttle`] | so much in each stretch of time, shared by lines, keys or classes |
//! | [`admission`] | the decision whether a request is taken, delayed or refused |
//!
//! Whatever is refused is refused early, with a typed reason and the time after which trying again makes sense ([`Refused`]).

#![forbid(unsafe_code)]

pub mod admission;
mod backoff;
pub mod balance;
mod causes;
#[doc(hidden)]
pub mod flights;
pub mod middleware;
#[doc(hidden)]
pub mod random;
mod refused;
#[doc(hidden)]
pub mod switch;
pub mod throttle;
#[doc(hidden)]
pub mod time;

pub use self::backoff::Backoff;
#[doc(hidden)]
pub use self::causes::with_causes;
pub use self::refused::{Reason, Refused};
#[cfg(dapple_shuttle)]
pub use self::time::model as time_model;

/// What middleware fails with, as in tower: a [`Refused`], another error of this crate, or one of the service inside.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
