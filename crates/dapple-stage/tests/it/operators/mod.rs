//! How stages are put together.

mod aggregate;
mod broadcast;
mod direct;
mod lossy;
mod queue;
