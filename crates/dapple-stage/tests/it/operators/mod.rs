//! How stages are put together.

mod aggregate;
mod broadcast;
mod commit;
mod direct;
mod lossy;
mod queue;
