//! Limits of every server: how many may connect, and how long the end takes.

use std::time::Duration;

use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};
use dapple_serve::host::{PerAddress, Shares, shares};

/// The limit of connections, with the default of servers of the public.
pub(crate) const CONNECTIONS_MAX: LimitOption =
    limits::CONNECTIONS_MAX.or_note("10000, or as many as the limit on open files leaves room for");

/// The limit of connections of one client, likewise.
pub(crate) const CONNECTIONS_PER_CLIENT: LimitOption = limits::CONNECTIONS_PER_CLIENT
    .or_note("a tenth of all for others than this machine itself, for which a number counts only when it is given");

/// How long the end takes: less than the ten seconds after which container managers kill.
pub(crate) const DRAIN: LimitOption = limits::DRAIN.or(9_000);

/// The limits that every server has, as its host takes them.
pub(crate) trait AdmissionLimits {
    /// Shares the descriptors of the process out, of which a connection takes `each`.
    fn shares(&self, each: u64) -> Shares;

    /// The limit of connections for one address, of this total.
    fn per_address(&self, connections: usize) -> PerAddress;

    /// How long the end may take.
    fn drain(&self) -> Duration;
}

impl<R: Rows> AdmissionLimits for LimitArgs<R> {
    fn shares(&self, each: u64) -> Shares {
        match self.number_given(&CONNECTIONS_MAX) {
            Some(connections) => shares(connections as usize, each, connections as usize),
            None => shares(CONNECTIONS, each, CONNECTIONS_FEW),
        }
    }

    fn per_address(&self, connections: usize) -> PerAddress {
        let max = |number| u32::try_from(number).unwrap_or(u32::MAX);
        match self.number_given(&CONNECTIONS_PER_CLIENT) {
            None => PerAddress::Others(max(connections as u64 / 10).max(1)),
            Some(0) => PerAddress::Unlimited,
            Some(given) => PerAddress::Everybody(max(given)),
        }
    }

    fn drain(&self) -> Duration {
        self.time(&DRAIN)
    }
}

/// The number of connections if no option sets it, and the number below which that is worth a
/// warning.
const CONNECTIONS: usize = 10_000;
const CONNECTIONS_FEW: usize = 1_000;
