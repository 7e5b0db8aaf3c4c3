//! The interfaces of a machine that a network can be on, and how a command line names them.

use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use crate::network::Network;
use crate::settings::Settings;
use crate::{ethernet, tun};

/// An interface and the addresses of a network on it, as a command line names them: `tun:NAME,ADDRESS/PREFIX[,ADDRESS/PREFIX…]`, or
/// `packet:NAME,…` for the frames of an Ethernet interface, with the addresses of routers as `via=ADDRESS`.
///
/// ```
/// use dapple_net::{Interface, InterfaceKind};
///
/// let tun: Interface = "tun:web0,10.7.0.1/24,fd07::1/64".parse().unwrap();
/// assert_eq!((tun.kind, tun.name.as_str(), tun.settings.addresses.len()), (InterfaceKind::Tun, "web0", 2));
/// let veth: Interface = "packet:veth0,10.7.0.1/24,via=10.7.0.254".parse().unwrap();
/// assert_eq!((veth.kind, veth.settings.routers.len()), (InterfaceKind::Packet, 1));
/// assert!("tun:web0".parse::<Interface>().is_err());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Interface {
    /// How packets come and go.
    pub kind: InterfaceKind,
    /// The name of the interface.
    pub name: String,
    /// Addresses and limits.
    pub settings: Settings,
}

/// How packets of an interface come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceKind {
    /// A TUN interface: the kernel is the other end.
    Tun,
    /// A packet socket on an Ethernet interface, such as a veth: the other ends are hosts behind it. The network has a hardware address of
    /// its own there, and answers for its addresses by ARP and neighbor discovery.
    Packet,
}

impl Interface {
    /// Opens the interface with this many queues, and a network on it. Each queue gets a color of its own.
    ///
    /// A TUN interface is made if there is none, and one that was made for one queue is opened with one. The kernel's end needs an
    /// address and to be up: `ip addr add 10.7.0.2/24 dev NAME` and `ip link set NAME up`. An Ethernet interface needs to be up, and no
    /// address.
    ///
    /// # Errors
    /// Those of [`TunQueue::open`](dapple_io::net::TunQueue::open) or [`PacketQueue::open`](dapple_io::net::PacketQueue::open), and of
    /// [`Network::new`].
    pub fn open(self, queues: usize) -> io::Result<Network> {
        let devices = match self.kind {
            InterfaceKind::Tun => tun::open(&self.name, queues)?,
            InterfaceKind::Packet => ethernet::open(&self.name, queues, &self.settings)?,
        };
        Network::new(devices, self.settings)
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Interface, String> {
        let shape = || format!("{text:?} is not of the form tun:NAME,ADDRESS/PREFIX or packet:NAME,ADDRESS/PREFIX");
        let (kind, rest) = text.split_once(':').ok_or_else(shape)?;
        let kind = match kind {
            "tun" => InterfaceKind::Tun,
            "packet" => InterfaceKind::Packet,
            _ => return Err(shape()),
        };
        let (name, items) = rest.split_once(',').ok_or_else(shape)?;
        let (mut addresses, mut routers) = (Vec::new(), Vec::new());
        for item in items.split(',') {
            match item.strip_prefix("via=").filter(|_| kind == InterfaceKind::Packet) {
                Some(router) => {
                    routers.push(router.parse().map_err(|_| format!("{router:?} is not the address of a router"))?);
                }
                None => addresses.push(address(item)?),
            }
        }
        let Some((first, more)) = addresses.split_first().filter(|_| !name.is_empty()) else { return Err(shape()) };
        let mut settings = Settings::new(first.0, first.1);
        settings.addresses.extend_from_slice(more);
        settings.routers = routers;
        Ok(Interface { kind, name: name.to_owned(), settings })
    }
}

/// An address with the length of its prefix.
fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(ip, len)| Some((ip.parse().ok()?, len.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not an address with the length of its prefix, such as 10.7.0.1/24"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_texts_are_refused_with_a_sentence() {
        for text in [
            "tun",
            "tap:x,10.7.0.1/24",
            "tun:x",
            "tun:,10.7.0.1/24",
            "tun:x,10.7.0.1",
            "tun:x,10.7.0.1/24,",
            "tun:x,10.7.0.1/24,via=10.7.0.2",
            "packet:x,via=10.7.0.2",
            "packet:x,10.7.0.1/24,via=10.7.0.2/24",
        ] {
            let error = text.parse::<Interface>().unwrap_err();
            assert!(error.contains(" is not "), "{error}");
        }
    }
}
