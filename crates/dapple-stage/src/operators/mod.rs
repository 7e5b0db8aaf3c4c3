//! How stages are put together.

pub mod aggregate;
pub mod broadcast;
pub mod commit;
mod credits;
pub mod direct;
mod flights;
pub mod queue;
