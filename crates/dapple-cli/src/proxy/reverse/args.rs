//! The options of a reverse proxy.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::target::{Target, target};
use crate::config::{number, seconds};
use crate::proxy::destination::network;

/// With `--to`: a reverse proxy, for all clients, in front of servers of one's own.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct ReverseArgs {
    /// Be a reverse proxy for these servers: http://HOST:PORT, https://HOST (HTTP/2 or 1.1, by ALPN), h2c://HOST:PORT (HTTP/2
    /// without TLS); separated by commas, or repeated; SIGHUP reads the list of the file again
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = target)]
    pub(crate) to: Vec<Target>,

    /// Ask upstreams with their own name in `Host`; without it they get the client's
    #[arg(long)]
    pub(crate) rewrite_host: bool,

    /// Proxies in front of this one, such as 10.0.0.0/8: what they say in X-Forwarded-* and Forwarded is kept and added to, what
    /// others say is replaced; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) trust_forwarded: Vec<IpNet>,

    /// Tell upstreams nothing of clients: no X-Forwarded-* and no Forwarded
    #[arg(long)]
    pub(crate) no_forwarded: bool,

    /// Certificates in PEM format that upstreams with https:// have to be signed by [default: those of Mozilla's authorities]
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream_ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) pool: PoolArgs,

    #[command(flatten)]
    pub(crate) health: HealthArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Connections to upstreams, and what is tried again.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct PoolArgs {
    /// The most connections to one upstream; by HTTP/2 each carries up to 100 requests
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = number::<u32>(1..=100_000))]
    pub(crate) upstream_connections: u32,

    /// How long a connection to an upstream may wait for its next request, in seconds; shorter than the upstream's own time
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    pub(crate) upstream_idle_s: Duration,

    /// How often more a request is tried, at other upstreams, where that is safe; 0 never
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<u32>(0..=16))]
    pub(crate) retries: u32,

    /// The most requests that are tried again, in percent of all, so that retries make no overload worse
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number::<u32>(0..=100))]
    pub(crate) retry_percent: u32,
}

/// When an upstream is in, and when it is out.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct HealthArgs {
    /// So many failures in a row put an upstream out, for a second at first, then for longer, up to half a minute
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32>(1..=1_000))]
    pub(crate) fail_after: u32,

    /// Ask each upstream for this path now and then: it is in while the answer is 200 to 399
    #[arg(long, value_name = "PATH", value_parser = path)]
    pub(crate) health_path: Option<String>,

    /// How often, in seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(crate) health_interval_s: Duration,

    /// How long that answer may take, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) health_timeout_s: Duration,

    /// So many good answers in a row put an upstream in
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<u32>(1..=1_000))]
    pub(crate) health_passes: u32,

    /// So many bad answers in a row, or none, put it out
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32>(1..=1_000))]
    pub(crate) health_failures: u32,
}

/// Encryption towards clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reverse (with --to)")]
pub(crate) struct TlsArgs {
    /// Speak HTTPS to clients, with this certificate and the chain behind it, in PEM format; with several, clients get that for the
    /// name they ask for; SIGHUP reads them again
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Vec<PathBuf>,

    /// The key of the certificate, in PEM format; as many as there are certificates, in the same order
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Vec<PathBuf>,

    /// Speak HTTPS with a certificate made for this process, for trying: nobody vouches for it
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub(crate) tls_self_signed: bool,
}

/// A path with its query, as a request has it.
fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && !text.contains('#') && http::uri::PathAndQuery::try_from(text).is_ok();
    match is_path {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no path; write one such as /healthy")),
    }
}

/// Options that mean something with `--to` only.
pub(crate) const REVERSE_ONLY: [&str; 17] = [
    "rewrite_host",
    "trust_forwarded",
    "no_forwarded",
    "upstream_ca",
    "upstream_connections",
    "upstream_idle_s",
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

/// Options of the forward proxy, which mean nothing with `--to`.
pub(crate) const FORWARD_ONLY: [&str; 5] =
    ["allow_private", "allow_destination", "connect_port", "forwarded", "no_status"];
