//! The options of `dapple proxy`, each declared once: see [`crate::config`] for its other names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};
use ipnet::IpNet;

use crate::config::{host_and_port, number};
use crate::observe::ToldArgs;
use crate::proxy::ProxyError;
use crate::proxy::destination::{Destination, destination, network};
use crate::proxy::reverse::ReverseArgs;
use crate::server::{CONNECTIONS_MAX, CONNECTIONS_PER_CLIENT, DRAIN, ProxyConnectionRows, Wanted};

/// Forward HTTP for browsers and programs, with one cache for all of them; or, with --to, be a
/// reverse proxy for servers
///
/// Every connection, every tunnel and every connection to a server has a color of its own; the
/// cache is many shards with a color each. Responses are kept as RFC 9111 allows, and fetched once
/// when many clients want them at the same time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Read options from this TOML file too; the command line and the environment win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Check all options, the file, and everything they name; print the settings in use, and serve
    /// nothing
    #[arg(long)]
    pub(crate) check: bool,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    #[command(flatten)]
    pub(crate) allow: AllowArgs,

    #[command(flatten)]
    pub(crate) cache: CacheArgs,

    #[command(flatten)]
    pub(crate) reverse: ReverseArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs<ProxyRows>,

    #[command(flatten)]
    pub(crate) connection: LimitArgs<ProxyConnectionRows>,

    #[command(flatten)]
    pub(crate) told: ToldArgs,

    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// The addresses to listen on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct ListenArgs {
    /// The address to listen on, may be given several times; for hosts other than this machine,
    /// `--allow-clients` has to list the clients (without --to)
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port", value_parser = host_and_port)]
    addr: Vec<(String, u16)>,

    /// The port to listen on, on 127.0.0.1 only; 0 takes any free one [default: 3128; with --to
    /// 8080]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65_535))]
    port: Option<u16>,
}

/// The clients that may use the proxy, and the servers that it reaches.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Clients and servers")]
pub(crate) struct AllowArgs {
    /// Clients that may use the proxy besides this machine, such as 192.168.1.0/24; may be repeated
    /// [default: none; with --to all]
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) allow_clients: Vec<IpNet>,

    /// Let clients reach private networks and this machine: 10/8, 127/8, 192.168/16, fc00::/7 and
    /// the like
    #[arg(long)]
    pub(crate) allow_private: bool,

    /// A network or host that clients may reach although its addresses are private; may be repeated
    #[arg(long, value_name = "NETWORK|HOST", value_parser = destination)]
    pub(crate) allow_destination: Vec<Destination>,

    /// A port that CONNECT may reach besides 443 and 563; may be repeated
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=65_535))]
    pub(crate) connect_port: Vec<u16>,

    /// Tell servers the address of the client, in the field `Forwarded`
    #[arg(long)]
    pub(crate) forwarded: bool,
}

/// The cache.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheArgs {
    /// Memory for the cache, in MiB; 0 keeps nothing [default: 256; with --to 0]
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=1 << 24))]
    cache_mb: Option<u64>,

    /// The largest response to keep, in KiB; at most half of a shard of the cache
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = number::<u64>(1..=1 << 24))]
    pub(crate) object_max_kb: u64,
}

/// Limits on clients, and on waiting for servers.
#[derive(Debug)]
pub(crate) struct ProxyRows;

impl Rows for ProxyRows {
    const HEADING: &'static str = "Limits";
    const ROWS: &'static [LimitOption] = &[
        CONNECTIONS_MAX,
        CONNECTIONS_PER_CLIENT,
        DRAIN,
        limits::TUNNELS_MAX,
        limits::CONNECT_TIMEOUT,
        limits::RESPONSE_TIMEOUT,
        limits::TUNNEL_TIMEOUT,
    ];
}

/// The runtime, and the status page.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct RuntimeArgs {
    /// The number of workers [default: DAPPLE_WORKERS, or else as many cores as this process may
    /// use]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// Put everything on the default color: the same program without parallelism, for comparison
    #[arg(long)]
    pub(crate) serial: bool,

    /// Do not answer at /-/status, where the proxy shows its metrics to clients on this machine
    #[arg(long)]
    pub(crate) no_status: bool,
}

/// Time limits for servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// To connect.
    pub(crate) connect: Duration,
    /// To send the head of a response, and each piece of its body.
    pub(crate) response: Duration,
    /// For an idle tunnel.
    pub(crate) tunnel: Duration,
}

impl ListenArgs {
    /// The configured addresses to listen on.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let addrs = self.addr.iter().map(|(host, port)| wanted(host, *port, "--addr HOST:PORT"));
        addrs.chain(self.port.map(|port| wanted("127.0.0.1", port, "--port N"))).collect()
    }

    /// The address to listen on if none is configured.
    pub(crate) fn wanted_by_default(&self, is_reverse: bool) -> Wanted {
        wanted("127.0.0.1", if is_reverse { REVERSE_PORT } else { PORT }, "--port N")
    }
}

impl AllowArgs {
    /// Checks that the options list the allowed clients if other machines can connect.
    ///
    /// # Errors
    ///
    /// They do not: a proxy must not be open to others by accident.
    pub(crate) fn may_listen(&self, addr: SocketAddr) -> Result<(), ProxyError> {
        match addr.ip().is_loopback() || !self.allow_clients.is_empty() {
            true => Ok(()),
            false => Err(ProxyError::Open(addr)),
        }
    }
}

impl CacheArgs {
    /// Memory for the cache, in MiB. A reverse proxy keeps nothing by default.
    pub(crate) fn mb(&self, is_reverse: bool) -> u64 {
        self.cache_mb.unwrap_or(if is_reverse { 0 } else { CACHE_MB })
    }
}

impl Args {
    /// The time limits.
    pub(crate) fn waits(&self) -> Waits {
        Waits {
            connect: self.limits.time(&limits::CONNECT_TIMEOUT),
            response: self.limits.time(&limits::RESPONSE_TIMEOUT),
            tunnel: self.limits.time(&limits::TUNNEL_TIMEOUT),
        }
    }

    /// The most tunnels at a time.
    pub(crate) fn tunnels_max(&self) -> usize {
        self.limits.number(&limits::TUNNELS_MAX) as usize
    }
}

fn wanted(host: &str, port: u16, option: &'static str) -> Wanted {
    Wanted { host: host.to_owned(), port, reuse_port: false, redirects: false, option }
}

/// The usual port of proxies.
const PORT: u16 = 3128;

/// Memory for the cache of a forward proxy, in MiB.
const CACHE_MB: u64 = 256;

/// The usual port for trying web servers.
const REVERSE_PORT: u16 = 8080;

const EXAMPLES: &str = "\
Every option can also be given in the environment (--cache-mb 64 is DAPPLE_PROXY_CACHE_MB=64) and in the file of
--config (cache_mb = 64). The command line wins over the environment, and that over the file.

Examples:
  dapple proxy                                  on http://127.0.0.1:3128, for this machine only
  curl -x http://127.0.0.1:3128 http://example.com/
  dapple proxy --addr 0.0.0.0:3128 --allow-clients 192.168.1.0/24
                                                for the clients of one network
  dapple proxy --allow-destination wiki.intern  and a server that has a private address
  dapple proxy --cache-mb 2048 --object-max-kb 65536
                                                a large cache, for large files as well
  dapple proxy --config proxy.toml --check      print the settings, and check whether they make sense
  dapple proxy --to http://127.0.0.1:9000,http://127.0.0.1:9001 --health-path /healthy
                                                a reverse proxy on http://127.0.0.1:8080 for two servers
  dapple proxy --to http://127.0.0.1:9000 --cache-mb 512
                                                one that keeps responses as Cache-Control or CDN-Cache-Control allows
  dapple proxy --addr 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem --to h2c://10.0.0.7:50051
                                                HTTPS for all clients, in front of an HTTP/2 server such as gRPC's

SIGTERM or Ctrl-C ends it: no new connections, what is in flight is finished within --drain-s seconds; a second one ends
it at once. SIGUSR2 starts the program file anew, which takes over without a gap. SIGUSR1 or SIGHUP opens the access log
anew; with --to SIGHUP reads the list of servers and the certificates again. DAPPLE_LOG (error, warn, info, debug) sets how much it says on stderr; warn when left out. docs/proxy.md tells the
rest.";
