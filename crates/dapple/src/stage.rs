//! Stages: bounded queues, admission control, composition, and tower middleware that needs no reactor.
//!
//! Load is met with a queue and a decision, never with a collapse: what a stage or a layer admits, delays, refuses and drops is
//! explicit. Stages follow the design framework of S. Gribble's dissertation (Berkeley, 2000; chapters 3, 7 and 10): wrap,
//! pipeline, combine, replicate.

#[doc(inline)]
pub use dapple_stage::*;
#[doc(inline)]
pub use dapple_tower::{Backoff, BoxError, Reason, Refused, admission, balance, middleware, throttle};
