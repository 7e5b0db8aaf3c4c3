//! The addresses to listen on.

use crate::config::{host_and_port, number};
use crate::server::{NetArgs, Wanted};

/// The addresses to listen on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct ListenArgs {
    /// The address to listen on, may be given several times; 0.0.0.0 or [::] as the host means
    /// every address of this machine
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port", value_parser = host_and_port)]
    addr: Vec<(String, u16)>,

    /// The port to listen on, on 127.0.0.1 only; 0 takes any free one [default: 8080]
    #[arg(long, value_name = "N", value_parser = number::<u16>(0..=65_535))]
    port: Option<u16>,

    /// Let other processes listen on the same port, each taking a share of the connections
    #[arg(long)]
    pub(crate) reuse_port: bool,

    #[command(flatten)]
    pub(crate) net: NetArgs,
}

impl ListenArgs {
    /// The configured addresses to listen on.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let addrs = self.addr.iter().map(|(host, port)| self.wanted_at(host, *port, "--addr HOST:PORT"));
        addrs.chain(self.port.map(|port| self.wanted_at_default(port))).collect()
    }

    /// The address to listen on if none is configured.
    pub(crate) fn wanted_by_default(&self) -> Wanted {
        self.wanted_at_default(8080)
    }

    fn wanted_at_default(&self, port: u16) -> Wanted {
        self.wanted_at(&self.net.host().to_string(), port, "--port N")
    }

    fn wanted_at(&self, host: &str, port: u16, option: &'static str) -> Wanted {
        Wanted { host: host.to_owned(), port, reuse_port: self.reuse_port, redirects: false, option }
    }
}
