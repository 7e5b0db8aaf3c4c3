//! Throttles: rate limits shared by queues, keys or classes, for any sink or service.
//!
//! | part | role |
//! |---|---|
//! | [`Throttle`] | the handle: `try_take`, `until_ready`; one line, fair among keys, or by classes |
//! | [`ThrottleLayer`], [`Throttled`] | a throttled service, by the key and cost of its requests |
//! | [`ThrottledSink`] | any throttled sink, by the key and cost of its items |
//! | `rate` | the token bucket |
//! | `plain`, `fair`, `classes` | the choice of the next ticket, without locks and clocks |
//! | `shared` | the waiting tickets, and the alarm that wakes them |
//!
//! The throttles that the thesis puts between stages (Gribble, chapter 10).
//! [`RateLimit`](crate::middleware::RateLimit) is the one with tower's name.

mod classes;
mod discipline;
mod fair;
mod future;
mod grant;
mod key;
mod plain;
mod rate;
mod service;
mod shared;
mod sink;
mod until;

#[cfg(test)]
mod tests;

pub(crate) use self::grant::Grant;

pub use self::classes::Class;
pub use self::future::ResponseFuture;
pub use self::key::Key;
pub use self::rate::Rate;
pub use self::service::{ThrottleLayer, Throttled};
pub use self::shared::Throttle;
pub use self::sink::ThrottledSink;
pub use self::until::UntilReady;
