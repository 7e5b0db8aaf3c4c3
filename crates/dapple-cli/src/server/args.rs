//! Options of every server: how many may connect, and how long the end takes.

use std::time::Duration;

use dapple_serve::host::{PerAddress, Shares, shares};

use crate::config::number;

/// How many may connect, and how long the end takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct AdmissionArgs {
    /// The most connections of clients at a time; at the limit those that rest make room [default: 10000, or as many as the
    /// limit on open files leaves room for]
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    connections: Option<u32>,

    /// The most connections from one address, or from one /64 of IPv6; 0 is no limit [default: a tenth of all for others than
    /// this machine itself, for which a number counts only when it is given]
    #[arg(long, value_name = "N", value_parser = number::<u32>(0..=u64::from(u32::MAX)))]
    connections_per_address: Option<u32>,

    /// How long responses in flight may take after the signal to stop, in seconds
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = number::<u64>(0..=3600))]
    drain_s: u64,
}

impl AdmissionArgs {
    /// Shares the descriptors of the process out, of which a connection takes `each`.
    pub(crate) fn shares(&self, each: u64) -> Shares {
        match self.connections {
            Some(connections) => shares(connections as usize, each, connections as usize),
            None => shares(CONNECTIONS, each, CONNECTIONS_FEW),
        }
    }

    /// The limit of connections for one address, out of so many in all.
    pub(crate) fn per_address(&self, connections: usize) -> PerAddress {
        match self.connections_per_address {
            None => PerAddress::Others(u32::try_from(connections / 10).unwrap_or(u32::MAX).max(1)),
            Some(0) => PerAddress::Unlimited,
            Some(max) => PerAddress::Everybody(max),
        }
    }

    /// How long the end may take.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }
}

/// How many connections there are where nobody says it, and how few of them are worth a warning then.
const CONNECTIONS: usize = 10_000;
const CONNECTIONS_FEW: usize = 1_000;
