//! Composition operators.

mod aggregate;
mod broadcast;
mod direct;
mod lossy;
mod queue;
