//! The options of a reverse proxy.

use std::path::PathBuf;
use std::time::Duration;

use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};
use ipnet::IpNet;

use super::target::{Target, target};
use crate::config::{number, seconds};
use crate::proxy::destination::network;

/// With `--to`: a reverse proxy, for all clients, in front of your own servers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct ReverseArgs {
    /// Be a reverse proxy for these servers: http://HOST:PORT, https://HOST (HTTP/2 or 1.1, by
    /// ALPN), h2c://HOST:PORT (HTTP/2 without TLS); separated by commas, or repeated; SIGHUP reads
    /// the list in the file again
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = target)]
    pub(crate) to: Vec<Target>,

    /// Send upstreams their own name in `Host`; without it they get the client's
    #[arg(long)]
    pub(crate) rewrite_host: bool,

    /// Trusted proxies in front of this one, such as 10.0.0.0/8: their X-Forwarded-* and Forwarded
    /// are kept and added to, those of others are replaced; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) trust_forwarded: Vec<IpNet>,

    /// Tell upstreams nothing of clients: no X-Forwarded-* and no Forwarded
    #[arg(long)]
    pub(crate) no_forwarded: bool,

    /// Certificates in PEM format of the authorities for upstreams with https:// [default:
    /// Mozilla's authorities]
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream_ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) pool: LimitArgs<PoolRows>,

    #[command(flatten)]
    pub(crate) health: HealthArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Connections to upstreams, and retries.
#[derive(Debug)]
pub(crate) struct PoolRows;

impl Rows for PoolRows {
    const HEADING: &'static str = "Reverse (with --to)";
    const ROWS: &'static [LimitOption] =
        &[limits::UPSTREAM_CONNECTIONS_MAX, limits::UPSTREAM_IDLE_TIMEOUT, limits::RETRIES, limits::RETRY_PERCENT];
}

/// When an upstream is in service.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct HealthArgs {
    /// Take an upstream out of service after this many failures in a row, for a second at first,
    /// then for longer, up to half a minute
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32>(1..=1_000))]
    pub(crate) fail_after: u32,

    /// Request this path from each upstream at intervals: it is healthy while the answer is 200 to
    /// 399
    #[arg(long, value_name = "PATH", value_parser = path)]
    pub(crate) health_path: Option<String>,

    /// The interval of health checks, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(crate) health_interval_s: Duration,

    /// The time limit of a health check, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) health_timeout_s: Duration,

    /// Put an upstream into service after this many good checks in a row
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<u32>(1..=1_000))]
    pub(crate) health_passes: u32,

    /// Take an upstream out of service after this many failed checks in a row
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32>(1..=1_000))]
    pub(crate) health_failures: u32,
}

/// TLS for clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct TlsArgs {
    /// Speak HTTPS to clients, with this certificate and its chain, in PEM format; with several,
    /// each client gets the one for its host name; SIGHUP reads them again
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Vec<PathBuf>,

    /// The key of the certificate, in PEM format; as many as there are certificates, in the same
    /// order
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Vec<PathBuf>,

    /// Speak HTTPS with a self-signed certificate made for this process, for trying things out
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub(crate) tls_self_signed: bool,
}

/// Parses a path with its query, as in a request.
fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && !text.contains('#') && http::uri::PathAndQuery::try_from(text).is_ok();
    match is_path {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a path; write one such as /healthy")),
    }
}

/// Options that need `--to`.
pub(crate) const REVERSE_ONLY: [&str; 17] = [
    "rewrite_host",
    "trust_forwarded",
    "no_forwarded",
    "upstream_ca",
    "upstream_connections_max",
    "upstream_idle_timeout_s",
    "retries",
    "retry_percent",
    "fail_after",
    "health_path",
    "health_interval_s",
    "health_timeout_s",
    "health_passes",
    "health_failures",
    "tls_cert",
    "tls_key",
    "tls_self_signed",
];

/// Options of the forward proxy, which have no effect with `--to`.
pub(crate) const FORWARD_ONLY: [&str; 5] =
    ["allow_private", "allow_destination", "connect_port", "forwarded", "no_status"];
