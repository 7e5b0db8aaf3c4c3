//! tower's middleware for any executor: no layer needs a reactor or panics without one.
//!
//! | layer | effect | compared with tower's |
//! |---|---|---|
//! | [`TimeoutLayer`] | gives up on a response after a while | the same |
//! | [`ConcurrencyLimitLayer`] | admits this many requests at a time | the same |
//! | [`RateLimitLayer`] | admits this many requests per period | clones share the limit |
//! | [`ShedLayer`] | refuses a request without room, instead of letting it wait | `LoadShed`: typed, and without false refusals |
//! | [`RetryLayer`] | sends a request again, as its policy says, within a budget | includes a policy: [`retry::Attempts`] |
//! | [`BufferLayer`] | a bounded queue for a service that cannot be cloned | no worker to spawn |
//!
//! Timers belong to the current Dapple runtime if there is one, otherwise to one thread that the
//! first timer starts. Errors are [`BoxError`](crate::BoxError)s; a refusal is a
//! [`Refused`](crate::Refused) in one.
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
