//! Tests of the simulator itself.

mod determinism;
mod faults;
mod network;
mod page;
mod world;
