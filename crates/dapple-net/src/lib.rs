//! TCP and UDP in user space: the network stack as a part of the program (PLDI 2007, section 4.8).
//!
//! By default Dapple's sockets are the kernel's. With a [`Network`], a runtime has its own: smoltcp's TCP over a [`Device`] that carries
//! packets, such as a TUN device or a link in memory. Programs do not change: the same [`TcpListener`](dapple_io::net::TcpListener),
//! [`TcpStream`](dapple_io::net::TcpStream) and [`UdpSocket`](dapple_io::net::UdpSocket), and all that is built on them. One line of the
//! builder chooses:
//!
//! ```
//! use dapple_net::{LinkFaults, Network, OnNetwork, Settings, pair};
//!
//! let (device, _other_end) = pair(1500, LinkFaults::default());
//! let network = Network::over(device, Settings::new("10.7.0.1".parse().unwrap(), 24))?;
//! let runtime = dapple_io::runtime_builder().workers(1).network(network.clone()).build()?;
//! runtime.block_on(async { dapple_io::net::TcpListener::bind("10.7.0.1:80").map(drop) })?;
//! assert_eq!(network.stats().connections, 0);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `network` | the devices of a network, the tasks that receive, the switch |
//! | `stack` | one device with its connections, timers and limits |
//! | `connection` | one connection, with the **table of its phases** |
//! | `ports` | listeners, sockets for datagrams, free ports |
//! | `sockets` | what `dapple-io` calls |
//! | `packet`, `wire` | one look at each packet; a device as smoltcp sees it |
//! | `device`, `pair` | the border to what carries packets; a link in memory |
//! | `interface` | names of interfaces |
//! | `tun`, `ethernet`, `offload` | TUN interfaces; packet sockets; what both leave to the kernel |
//! | `neighbors`, `resolution` | hardware addresses of the hosts on a link: ARP and neighbor discovery |
//! | `settings`, `stats` | limits; counts |

#![forbid(unsafe_code)]

mod connection;
mod device;
mod ethernet;
mod interface;
mod neighbors;
mod network;
mod offload;
mod packet;
mod pair;
mod ports;
mod resolution;
mod settings;
mod sockets;
mod stack;
mod stats;
mod tun;
mod wire;

use std::sync::Arc;

pub use device::{Device, Received};
pub use interface::{Interface, InterfaceKind};
pub use network::Network;
pub use pair::{LinkFaults, MemoryDevice, pair};
pub use settings::Settings;
pub use stats::Stats;

/// The one line that gives a runtime its own network.
pub trait OnNetwork: Sized {
    /// Sockets of this runtime are on `network` in place of the kernel's. Replaces the driver that the builder has; limits of the driver
    /// are given with [`network_with`](Self::network_with).
    #[must_use]
    fn network(self, network: Network) -> Self {
        self.network_with(network, dapple_io::Config::default())
    }

    /// The same, with limits of the driver.
    #[must_use]
    fn network_with(self, network: Network, config: dapple_io::Config) -> Self;
}

impl OnNetwork for dapple_sched::Builder {
    fn network_with(self, network: Network, config: dapple_io::Config) -> Self {
        dapple_io::environment::on_network(self, Arc::new(network), config)
    }
}
