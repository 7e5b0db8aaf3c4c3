//! The network of a server: the kernel's, or TCP of the program's own on an interface.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use dapple::runtime::Builder;

use self::built_in::Interface;
pub(crate) use self::built_in::OwnNetwork;
use crate::observe::metrics::exposition::Exposition;

/// The network of a server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct NetArgs {
    /// Listen on a network of this program's own, TCP in user space on a TUN interface, such as
    /// tun:web0,10.7.0.1/24, or on an Ethernet interface, such as packet:veth0,10.7.0.1/24,via=10.7.0.254;
    /// that address takes the place of 127.0.0.1
    #[arg(long, value_name = "KIND:NAME,ADDRESS/PREFIX", value_parser = built_in::parse, conflicts_with_all = ["reuse_port", "http3"])]
    net: Option<Interface>,
}

impl NetArgs {
    /// The address of this server where no option names one.
    pub(crate) fn host(&self) -> IpAddr {
        self.net.as_ref().map_or(IpAddr::from([127, 0, 0, 1]), built_in::first_address)
    }

    /// Checks that this build has networks of its own, if one is asked for.
    ///
    /// # Errors
    ///
    /// It has none.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.net.as_ref().map_or(Ok(()), built_in::check)
    }

    /// The builder with this network.
    ///
    /// # Errors
    ///
    /// The interface cannot be opened.
    pub(crate) fn open(&self, builder: Builder) -> io::Result<(Builder, OwnNetwork)> {
        match &self.net {
            Some(interface) => built_in::open(interface, builder),
            None => Ok((builder, OwnNetwork::none())),
        }
    }
}

impl OwnNetwork {
    /// Waits until clients have all that was sent to them, at most for `limit`: the network ends with the process.
    pub(crate) async fn delivered(&self, limit: Duration) {
        let _ = dapple::time::timeout(limit, self.all_delivered()).await;
    }
}

#[cfg(feature = "net")]
mod built_in {
    use std::io;
    use std::net::IpAddr;

    use dapple::network::{InterfaceKind, Network, OnNetwork, Stats};
    use dapple::runtime::Builder;

    pub(super) use dapple::network::Interface;

    use super::Exposition;
    use crate::observe::metrics::exposition::Kind;

    /// A network of the program's own, if it has one.
    #[derive(Clone, Debug)]
    pub(crate) struct OwnNetwork(Option<Network>);

    pub(super) fn parse(text: &str) -> Result<Interface, String> {
        text.parse()
    }

    pub(super) fn first_address(interface: &Interface) -> IpAddr {
        interface.settings.addresses[0].0
    }

    pub(super) fn check(_: &Interface) -> io::Result<()> {
        Ok(())
    }

    /// A queue for each worker.
    pub(super) fn open(interface: &Interface, builder: Builder) -> io::Result<(Builder, OwnNetwork)> {
        let opened = interface.clone().open(builder.worker_count()?);
        let network = opened.map_err(|error| explained(interface, &error))?;
        Ok((builder.network(network.clone()), OwnNetwork(Some(network))))
    }

    fn explained(interface: &Interface, error: &io::Error) -> io::Error {
        let name = &interface.name;
        let advice = match (interface.kind, error.kind()) {
            (InterfaceKind::Packet, io::ErrorKind::PermissionDenied) => {
                "packet sockets need the right CAP_NET_RAW: run it as root, or give the program the right, \
                 `setcap cap_net_raw+ep PROGRAM`"
                    .to_owned()
            }
            (InterfaceKind::Packet, _) => {
                "name an Ethernet interface, such as a veth, and an address of a host on it".to_owned()
            }
            (_, io::ErrorKind::PermissionDenied) => format!(
                "make it for this user, as root: `ip tuntap add {name} mode tun multi_queue user {}`",
                rustix::process::getuid().as_raw()
            ),
            (_, io::ErrorKind::ResourceBusy) => {
                "another process has it; end that, or name another interface".to_owned()
            }
            (_, io::ErrorKind::NotFound) => "this system has no /dev/net/tun; load the module tun".to_owned(),
            _ => "name a TUN interface, and an address of a host on it".to_owned(),
        };
        io::Error::new(error.kind(), format!("the interface {name} cannot be used ({error}); {advice}"))
    }

    impl OwnNetwork {
        pub(super) fn none() -> OwnNetwork {
            OwnNetwork(None)
        }

        pub(super) async fn all_delivered(&self) {
            if let Some(network) = &self.0 {
                network.delivered().await;
            }
        }

        /// Writes the counts of this network, if there is one.
        pub(crate) fn write(&self, out: &mut Exposition) {
            let Some(network) = &self.0 else { return };
            let Stats { received, sent, lost, broken, connections, half_open, time_wait, .. } = network.stats();
            let Stats { half_open_evicted, refused, datagrams_lost, .. } = network.stats();
            let families = [
                ("dapple_network_packets_received_total", Kind::Counter, "Packets that came.", received),
                ("dapple_network_packets_sent_total", Kind::Counter, "Packets that were sent.", sent),
                ("dapple_network_packets_lost_total", Kind::Counter, "Packets that the interface did not take.", lost),
                (
                    "dapple_network_packets_broken_total",
                    Kind::Counter,
                    "Packets with a wrong length or checksum.",
                    broken,
                ),
                ("dapple_network_connections", Kind::Gauge, "Connections.", connections as u64),
                (
                    "dapple_network_half_open",
                    Kind::Gauge,
                    "Connections that come and are not made yet.",
                    half_open as u64,
                ),
                ("dapple_network_time_wait", Kind::Gauge, "Closed connections that are remembered.", time_wait as u64),
                (
                    "dapple_network_half_open_evicted_total",
                    Kind::Counter,
                    "Half-open connections that a newer one replaced.",
                    half_open_evicted,
                ),
                ("dapple_network_refused_total", Kind::Counter, "New connections that found no room.", refused),
                ("dapple_network_datagrams_lost_total", Kind::Counter, "Datagrams that found no room.", datagrams_lost),
            ];
            for (name, kind, help, value) in families {
                out.single(name, kind, help, value as f64);
            }
        }
    }
}

#[cfg(not(feature = "net"))]
mod built_in {
    use std::convert::Infallible;
    use std::io;
    use std::net::IpAddr;

    use dapple::runtime::Builder;

    use super::Exposition;

    /// The text of the option, which this build cannot use.
    pub(super) type Interface = String;

    /// There is none in this build.
    #[derive(Clone, Debug)]
    pub(crate) struct OwnNetwork;

    pub(super) fn parse(text: &str) -> Result<Interface, Infallible> {
        Ok(text.to_owned())
    }

    /// Not used: the network is checked first.
    pub(super) fn first_address(_: &Interface) -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }

    pub(super) fn check(_: &Interface) -> io::Result<()> {
        Err(io::Error::other(
            "this program was built without networks of its own; leave --net out, or build it with `--features net`",
        ))
    }

    pub(super) fn open(interface: &Interface, builder: Builder) -> io::Result<(Builder, OwnNetwork)> {
        check(interface).map(|()| (builder, OwnNetwork))
    }

    impl OwnNetwork {
        pub(super) fn none() -> OwnNetwork {
            OwnNetwork
        }

        pub(super) async fn all_delivered(&self) {}

        pub(crate) fn write(&self, _: &mut Exposition) {}
    }
}
