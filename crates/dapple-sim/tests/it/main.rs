//! Tests of the simulator itself.

mod determinism;
mod disks;
mod faults;
mod network;
mod page;
mod reports;
mod world;
