//! tower's middleware, balance, throttles and admission control for any executor, without a
//! reactor.
//!
//! | module | contents |
//! |---|---|
//! | [`middleware`] | time-outs, limits, retries, buffers |
//! | [`balance`] | one service of many replicas |
//! | [`throttle`] | rate limits, shared by queues, keys or classes |
//! | [`admission`] | the decision to take, delay or refuse a request |
//!
//! Requests are refused early, with a typed reason and the time after which a retry makes sense
//! ([`Refused`]).

#![cfg_attr(docsrs, feature(doc_cfg))]
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

/// The error of middleware, as in tower: a [`Refused`], another error of this crate, or one of the
/// inner service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
