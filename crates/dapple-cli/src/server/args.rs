//! Options of every server: how many may connect, and how long the end takes.

use std::time::Duration;

use super::admission::PerAddress;
use crate::config::number;

/// How many may connect, and how long the end takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct AdmissionArgs {
    /// The most connections of clients at a time; at the limit new ones are answered with 503
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    pub(crate) connections: u32,

    /// The most connections from one address, or from one /64 of IPv6; 0 is no limit [default: a tenth of all, and none for
    /// this machine itself]
    #[arg(long, value_name = "N", value_parser = number::<u32>(0..=u64::from(u32::MAX)))]
    connections_per_address: Option<u32>,

    /// How long responses in flight may take after the signal to stop, in seconds
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = number::<u64>(0..=3600))]
    drain_s: u64,
}

impl AdmissionArgs {
    /// The limit of connections for one address.
    pub(crate) fn per_address(&self) -> PerAddress {
        match self.connections_per_address {
            None => PerAddress::Others((self.connections / 10).max(1)),
            Some(0) => PerAddress::Unlimited,
            Some(max) => PerAddress::Everybody(max),
        }
    }

    /// How long the end may take.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }
}
