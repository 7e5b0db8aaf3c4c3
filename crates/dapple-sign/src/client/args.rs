//! The command line of the client.

use std::path::PathBuf;
use std::time::Duration;

use dapple_serve::command_line::{host_and_port, number, seconds};

/// Send tasks to `dapple sign` in a closed loop, and measure throughput and latency.
///
/// Each answer starts the next task, so that P tasks are in flight all the time. After a refusal
/// the next task waits as long as the server says. With several servers, the client spreads its
/// connections over them; when a server dies, its connections move to the others, and later back.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// The address of the server; may be given several times
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070", value_parser = host_and_port)]
    pub(super) addr: Vec<(String, u16)>,

    /// The number of tasks in flight, over all connections
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = number::<usize>(1..=1_000_000))]
    pub(super) in_flight: usize,

    /// The number of connections
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = number::<usize>(1..=20_000))]
    pub(super) connections: usize,

    /// The duration in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(super) secs: Duration,

    /// The size of a task in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 5_000, value_parser = number::<usize>(0..=16_777_216))]
    pub(super) task_bytes: usize,

    /// Compute the digests too, and compare; implied by giving a secret
    #[arg(long)]
    verify: bool,

    /// A file with the bytes of the first secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    pub(super) first_secret: Option<PathBuf>,

    /// A file with the bytes of the second secret [default: the one published in the thesis]
    #[arg(long, value_name = "FILE")]
    pub(super) second_secret: Option<PathBuf>,

    /// Print the result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Do not print progress to stderr
    #[arg(long)]
    pub(super) quiet: bool,

    /// The number of worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16>(1..=1024))]
    pub(super) workers: u16,
}

impl ClientArgs {
    pub(super) fn verifies(&self) -> bool {
        self.verify || self.first_secret.is_some() || self.second_secret.is_some()
    }
}
