//! What the command line of the client says.

use std::path::PathBuf;
use std::time::Duration;

use crate::values::{host_and_port, number, seconds};

/// Send tasks to `dapple sign` in a closed loop, and measure throughput and latency.
///
/// Each answer is followed by the next task, so that P tasks are in flight all the time. Where a server refuses, the task's place rests for as long
/// as the server says. With several servers, connections are spread over them; those of a server that dies go to the others, and back.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// Where the server is; may be given several times
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", value_parser = host_and_port)]
    pub(super) addr: Vec<(String, u16)>,

    /// How many tasks are in flight, over all connections
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = number::<usize>(1..=1_000_000))]
    pub(super) in_flight: usize,

    /// How many connections
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = number::<usize>(1..=20_000))]
    pub(super) connections: usize,

    /// For how long, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(super) secs: Duration,

    /// How large a task is
    #[arg(long, value_name = "BYTES", default_value_t = 5_000, value_parser = number::<usize>(0..=16_777_216))]
    pub(super) task_bytes: usize,

    /// Compute the digests too, and compare; it is so where a secret is given
    #[arg(long)]
    verify: bool,

    /// The first secret, all bytes of this file [default: the one that the thesis has published]
    #[arg(long, value_name = "FILE")]
    pub(super) first_secret: Option<PathBuf>,

    /// The second secret
    #[arg(long, value_name = "FILE")]
    pub(super) second_secret: Option<PathBuf>,

    /// Print the result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Do not print progress to stderr
    #[arg(long)]
    pub(super) quiet: bool,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16>(1..=1024))]
    pub(super) workers: u16,
}

impl ClientArgs {
    pub(super) fn verifies(&self) -> bool {
        self.verify || self.first_secret.is_some() || self.second_secret.is_some()
    }
}
