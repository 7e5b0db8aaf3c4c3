//! tower's middleware for any executor: nothing here needs a reactor, and nothing panics for want of one.
//!
//! | layer | does | beside tower's |
//! |---|---|---|
//! | [`TimeoutLayer`] | gives up on a response after a while | the same |
//! | [`ConcurrencyLimitLayer`] | lets so many requests in at a time | the same |
//! | [`RateLimitLayer`] | lets so many requests in in each stretch of time | clones share the limit |
//! | [`ShedLayer`] | refuses what finds no room, instead of letting it wait | `LoadShed`: typed, and without false refusals |
//! | [`RetryLayer`] | sends a request again, as its policy says, within a budget | a policy that is ready: [`retry::Attempts`] |
//! | [`BufferLayer`] | a bounded queue for a service that cannot be cloned | no worker to be spawned |
//!
//! Timers are those of the Dapple runtime where one is current, and otherwise those of one thread that the first of them starts.
//! Errors are [`BoxError`](crate::BoxError)s; a refusal is a [`Refused`](crate::Refused) in one.
//!
//! Each folder has the same files: the service, its `layer`, and the `future` of its responses.

pub mod buffer;
pub mod concurrency_limit;
pub mod rate_limit;
pub mod retry;
pub mod shed;
#[doc(hidden)]
pub mod shedding;
pub mod timeout;

pub use self::buffer::{Buffer, BufferLayer};
pub use self::concurrency_limit::{ConcurrencyLimit, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer};
pub use self::rate_limit::{RateLimit, RateLimitLayer};
pub use self::retry::{Retry, RetryLayer};
pub use self::shed::{Shed, ShedLayer};
pub use self::timeout::{Timeout, TimeoutLayer};
