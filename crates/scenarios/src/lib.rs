//! Services in the simulator: what must always hold of them, and deliberate bugs that seeds have to find.
//!
//! `cargo xtask sim` runs all of them. A scenario adds hosts and faults to a simulation, and asserts what must hold; each of its bugs is
//! the same service with one mistake in it.

#![forbid(unsafe_code)]

mod calls;
mod chat;
mod commit;
mod disk;
mod etcd;
mod frames;
mod lease;
mod remote;
mod save;
mod scheduler;
mod serve;
mod transfer;

use dapple_sim::Simulation;

/// Adds hosts and faults to a simulation.
pub type Setup = fn(&mut Simulation);

/// A service, and what must hold of it.
#[derive(Debug)]
pub struct Scenario {
    /// How it is called on the command line.
    pub name: &'static str,
    /// The condition that must hold, in words.
    pub holds: &'static str,
    /// The service as it should be.
    pub setup: Setup,
    /// The same with one mistake each, by what the mistake is.
    pub bugs: &'static [(&'static str, Setup)],
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    scheduler::ORDER,
    scheduler::SETS,
    scheduler::READERS,
    scheduler::WAKES,
    scheduler::PANICS,
    frames::FRAMES,
    calls::CALLS,
    lease::LEASE,
    transfer::TRANSFER,
    save::SAVE,
    serve::SERVE,
    remote::ONCE,
    remote::OVERLOAD,
    remote::REPLICAS,
    commit::COMMIT,
    chat::CHAT,
    etcd::ETCD,
];
