//! What the server tells of its requests.

use std::path::PathBuf;

use super::log::Format;
use crate::config::host_and_port;

/// What the server tells of its requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log and metrics")]
pub(crate) struct ToldArgs {
    /// Append a line for each request to this file, `-` for stdout; SIGUSR1 or SIGHUP opens it anew
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// How the lines of the access log look
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(crate) access_log_format: Format,

    /// Where to answer GET /metrics, for Prometheus, and GET /-/healthy; a port of its own, not for the public
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) metrics: Option<(String, u16)>,
}
