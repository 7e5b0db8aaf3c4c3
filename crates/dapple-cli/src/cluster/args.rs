//! The options of `dapple host` and `dapple cluster`.

use std::net::IpAddr;
use std::path::PathBuf;

use dapple_cluster::Place;

use crate::config::{host_and_port, number};
use crate::observe::MetricsArgs;

/// Run the replicas that a cluster places on this machine
///
/// The host registers itself in etcd with its cores and its memory, and runs there what is decided; one of the hosts decides.
/// `dapple cluster` says what is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = HOST_EXAMPLES)]
pub(crate) struct HostArgs {
    /// The cluster: etcd://HOST:PORT[,HOST:PORT…]/PREFIX
    #[arg(long, value_name = "WHERE")]
    pub(super) join: Option<Place>,

    /// Read options from this TOML file too; the command line and the environment win over it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Check all options, print the settings in use, and run nothing
    #[arg(long)]
    pub(super) check: bool,

    /// The host's name, unlike that of all others [default: that of the machine]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// The address at which its replicas listen, and by which clients reach them
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(super) address: IpAddr,

    /// The cores that it offers [default: as many as this process may use]
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=10_000))]
    pub(super) cores: Option<u32>,

    /// The memory that it offers, in MB [default: that of the machine]
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=1 << 30))]
    pub(super) memory_mb: Option<u64>,

    /// How long until the cluster gives a silent host up and places its replicas elsewhere, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<u64>(2..=3600))]
    pub(super) ttl_s: u64,

    /// How long replicas may take to move to other hosts when this one ends, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = number::<u64>(0..=86_400))]
    pub(super) move_s: u64,

    /// The directory in which the host notes its processes [default: ~/.local/state/dapple/host/NAME]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,

    /// Show the cluster as a page at this address; one that is not loopback needs --page-token
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(super) page: Option<(String, u16)>,

    /// The token that a client of the page has to send: http://HOST:PORT/?token=TOKEN
    #[arg(long, value_name = "TOKEN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) page_token: Option<String>,

    #[command(flatten)]
    pub(super) metrics: MetricsArgs,

    /// The number of workers [default: DAPPLE_WORKERS, or else as many cores as this process may use]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(super) workers: Option<u16>,
}

/// Show and change what runs on the hosts of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = CLUSTER_EXAMPLES)]
pub(crate) struct ClusterArgs {
    /// Without one: `status`
    #[command(subcommand)]
    pub(super) action: Option<Action>,

    /// The cluster: etcd://HOST:PORT[,HOST:PORT…]/PREFIX
    #[arg(long, value_name = "WHERE")]
    pub(super) join: Option<Place>,

    /// Read options from this TOML file too
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The commands for a cluster.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// Print services, hosts, replicas with the reason for each, and what is missing
    Status,
    /// Write the descriptions of services in a TOML file, with a [[service]] for each
    Apply {
        /// The file
        file: PathBuf,
    },
    /// Change how many replicas a service has
    Scale {
        /// The service
        service: String,
        /// The least number
        min: u32,
        /// The largest number [default: the least]
        max: Option<u32>,
    },
    /// Replace all replicas of a service, a quarter at a time, without losing a request
    Roll {
        /// The service
        service: String,
        /// The new version's name, for {version} in the command
        #[arg(long, value_name = "VERSION")]
        to: Option<String>,
    },
    /// Remove a service; its replicas end
    Remove {
        /// The service
        service: String,
    },
    /// Let all replicas leave a host
    Drain {
        /// The host
        host: String,
        /// Let it be used again
        #[arg(long)]
        undo: bool,
    },
    /// Print the last decisions with their reasons
    Events {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
    },
}

const HOST_EXAMPLES: &str = "\
Every option can also be given in the environment (--ttl-s 5 is DAPPLE_HOST_TTL_S=5) and in the file of --config
(ttl_s = 5). The command line wins over the environment, and that over the file.

Examples:
  dapple host --join etcd://10.0.0.9:2379/shop --address 10.0.0.1
  dapple host --join etcd://10.0.0.9:2379/shop --address 10.0.0.1 --cores 4 --memory-mb 8192 --page 127.0.0.1:7070

SIGTERM or Ctrl-C lets its replicas move to other hosts first, for up to --move-s seconds; then it ends. Ended by SIGKILL,
it leaves its replicas running, and ends them at its next start. DAPPLE_LOG=info logs each decision and its reason.";

const CLUSTER_EXAMPLES: &str = "\
--join can also be given in the environment, as DAPPLE_CLUSTER_JOIN.

Examples:
  dapple cluster --join etcd://10.0.0.9:2379/shop apply echo.toml
  dapple cluster --join etcd://10.0.0.9:2379/shop status
  dapple cluster --join etcd://10.0.0.9:2379/shop --json events --last 100
  dapple cluster --join etcd://10.0.0.9:2379/shop drain a";
