//! The options for logs and metrics.

use std::path::PathBuf;

use super::log::Format;
use crate::config::host_and_port;

/// The options for logs and metrics.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log and metrics")]
pub(crate) struct ToldArgs {
    /// Append a line for each request to this file, `-` for stdout; SIGUSR1 or SIGHUP reopens it
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// The format of the access log
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(crate) access_log_format: Format,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// The address of the metrics.
#[derive(Debug, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Answer GET /metrics, for Prometheus, and GET /-/healthy at this address; use a separate port
    /// that is not public
    #[arg(long = "metrics", id = "metrics", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) addr: Option<(String, u16)>,

    /// Show at this address which color holds the program back, and what more workers would bring; for a browser, and
    /// for `dapple record`. An address that is not loopback needs --insight-token
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) insight: Option<(String, u16)>,

    /// The token that a client of that page has to send: http://HOST:PORT/?token=TOKEN
    #[arg(long, value_name = "TOKEN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) insight_token: Option<String>,
}
