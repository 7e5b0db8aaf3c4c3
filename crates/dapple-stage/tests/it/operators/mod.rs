//! Composition operators.

mod aggregate;
mod broadcast;
mod direct;
mod gather;
mod lossy;
mod queue;
