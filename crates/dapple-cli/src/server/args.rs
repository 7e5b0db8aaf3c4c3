//! Options of every server: the limits on connections, and the time limit of the end.

use std::time::Duration;

use dapple_serve::host::{PerAddress, Shares, shares};

use crate::config::number;

/// The limits on connections, and the time limit of the end.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct AdmissionArgs {
    /// The most client connections at a time; at the limit idle ones make room [default: 10000, or
    /// as many as the limit on open files leaves room for]
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    connections: Option<u32>,

    /// The most connections from one address, or from one /64 of IPv6; 0 is no limit [default: a
    /// tenth of all, except for this machine itself, which is limited only if a number is given]
    #[arg(long, value_name = "N", value_parser = number::<u32>(0..=u64::from(u32::MAX)))]
    connections_per_address: Option<u32>,

    /// How long responses in flight may take after the signal to stop, in seconds
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = number::<u64>(0..=3600))]
    drain_s: u64,
}

impl AdmissionArgs {
    /// Shares out the descriptors of the process, of which a connection takes `each`.
    pub(crate) fn shares(&self, each: u64) -> Shares {
        match self.connections {
            Some(connections) => shares(connections as usize, each, connections as usize),
            None => shares(CONNECTIONS, each, CONNECTIONS_FEW),
        }
    }

    /// The limit on connections from one address, for this total.
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

/// The default limit on connections, and the number below which the server warns.
const CONNECTIONS: usize = 10_000;
const CONNECTIONS_FEW: usize = 1_000;
