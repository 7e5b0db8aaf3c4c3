//! tower's middleware for any executor: nothing here needs a reactor, and nothing panics for want of one.
//!
//! | layer | does | tower's |
//! |---|---|---|
//! | [`RetryLayer`](retry::RetryLayer) | sends a request again, as its policy says, within a budget | `Retry`, with a policy that is ready |
//!
//! Timers are those of the Dapple runtime where one is current, and otherwise those of one thread that the first of them starts.

pub mod retry;

pub use self::retry::{Retry, RetryLayer};
