//! The rules about which clients may use the proxy, and what it connects to.
//!
//! A proxy reaches what its machine reaches, even if its clients cannot: services on loopback, the
//! routers and printers of a private network, a cloud's metadata service. So it connects only to
//! addresses of the public internet, unless options say otherwise. It checks the same address that
//! it then connects to: if a name resolves differently the second time, that gains nothing.

use std::net::{IpAddr, SocketAddr};

use dapple_client::relay::{AddressKind, unwrapped};
use ipnet::IpNet;

use super::destination::Destination;

/// The destinations that the proxy may connect to.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    allow_private: bool,
    networks: Vec<IpNet>,
    hosts: Vec<String>,
    connect_ports: Vec<u16>,
    /// The addresses on which the proxy itself listens.
    own: Vec<SocketAddr>,
}

/// The reason why an address is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is not of the public internet.
    Address(AddressKind),
    /// This proxy.
    Itself,
}

impl Rules {
    /// Creates the rules from options, for a proxy that listens at `own`: it does not connect to
    /// itself.
    pub(crate) fn new(
        allow_private: bool,
        destinations: &[Destination],
        connect_ports: &[u16],
        own: &[SocketAddr],
    ) -> Rules {
        let (connect_ports, own) = (connect_ports.to_vec(), own.to_vec());
        let mut rules = Rules { allow_private, connect_ports, own, ..Rules::default() };
        for destination in destinations {
            match destination {
                Destination::Network(network) => rules.networks.push(*network),
                Destination::Host(host) => rules.hosts.push(host.clone()),
            }
        }
        rules
    }

    /// Checks whether the proxy may connect to `addr`, which is an address of `host`.
    ///
    /// # Errors
    ///
    /// The kind of a forbidden address.
    pub(crate) fn may_connect(&self, host: &str, addr: SocketAddr) -> Result<(), Kind> {
        let ip = unwrapped(addr.ip());
        let Some(kind) = AddressKind::of(ip) else { return self.unless_itself(ip, addr.port()) };
        let host = host.trim_end_matches('.');
        let is_named = self.networks.iter().any(|network| network.contains(&ip))
            || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
        let is_private = matches!(kind, AddressKind::Loopback | AddressKind::Private);
        match is_named || (self.allow_private && is_private) {
            true => self.unless_itself(ip, addr.port()),
            false => Err(Kind::Address(kind)),
        }
    }

    /// Whether `CONNECT` may reach this port.
    pub(crate) fn may_tunnel(&self, port: u16) -> bool {
        TUNNEL_PORTS.contains(&port) || self.connect_ports.contains(&port)
    }

    fn unless_itself(&self, ip: IpAddr, port: u16) -> Result<(), Kind> {
        let is_itself = self
            .own
            .iter()
            .any(|own| own.port() == port && (own.ip() == ip || (own.ip().is_unspecified() && ip.is_loopback())));
        if is_itself { Err(Kind::Itself) } else { Ok(()) }
    }
}

impl Kind {
    /// The advice for a client.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Kind::Address(AddressKind::Loopback) => {
                "it is the machine that the proxy runs on; --allow-private allows that"
            }
            Kind::Address(AddressKind::Private) => {
                "it is in a private network; --allow-private allows all of these, --allow-destination \
                one"
            }
            Kind::Address(AddressKind::LinkLocal) => {
                "it is a link-local address or the metadata of a cloud; only --allow-destination with that address \
                allows it"
            }
            Kind::Address(AddressKind::Special) => {
                "it is not an address of one host on the internet; only --allow-destination allows it"
            }
            Kind::Itself => "it is this proxy itself",
        }
    }
}

/// Whether a client with this address may use the proxy.
pub(crate) fn admits(networks: &[IpNet], client: IpAddr) -> bool {
    let client = unwrapped(client);
    client.is_loopback() || networks.iter().any(|network| network.contains(&client))
}

/// HTTPS, and newsgroups over TLS.
const TUNNEL_PORTS: [u16; 2] = [443, 563];

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::{AddressKind, Destination, Kind, Rules, admits};

    fn judge(rules: &Rules, ip: &str) -> Result<(), Kind> {
        rules.may_connect("host.example", SocketAddr::new(ip.parse().unwrap(), 80))
    }

    #[test]
    fn only_the_internet_is_reached() {
        let rules = Rules::default();
        for public in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1", "64:ff9b::808:808"] {
            assert_eq!(judge(&rules, public), Ok(()), "{public}");
        }
        for (ip, kind) in [
            ("127.0.0.1", Kind::Address(AddressKind::Loopback)),
            ("127.255.255.255", Kind::Address(AddressKind::Loopback)),
            ("::1", Kind::Address(AddressKind::Loopback)),
            ("::ffff:127.0.0.1", Kind::Address(AddressKind::Loopback)),
            ("64:ff9b::7f00:1", Kind::Address(AddressKind::Loopback)),
            ("2002:7f00:1::", Kind::Address(AddressKind::Loopback)),
            ("10.1.2.3", Kind::Address(AddressKind::Private)),
            ("172.16.0.1", Kind::Address(AddressKind::Private)),
            ("172.31.255.255", Kind::Address(AddressKind::Private)),
            ("192.168.0.1", Kind::Address(AddressKind::Private)),
            ("100.64.0.1", Kind::Address(AddressKind::Private)),
            ("100.100.100.200", Kind::Address(AddressKind::Private)),
            ("::ffff:10.0.0.1", Kind::Address(AddressKind::Private)),
            ("fd12::1", Kind::Address(AddressKind::Private)),
            ("fec0::1", Kind::Address(AddressKind::Private)),
            ("169.254.169.254", Kind::Address(AddressKind::LinkLocal)),
            ("::ffff:169.254.169.254", Kind::Address(AddressKind::LinkLocal)),
            ("168.63.129.16", Kind::Address(AddressKind::LinkLocal)),
            ("fe80::1", Kind::Address(AddressKind::LinkLocal)),
            ("fd00:ec2::254", Kind::Address(AddressKind::LinkLocal)),
            ("0.0.0.0", Kind::Address(AddressKind::Special)),
            ("::", Kind::Address(AddressKind::Special)),
            ("::7f00:1", Kind::Address(AddressKind::Special)),
            ("224.0.0.1", Kind::Address(AddressKind::Special)),
            ("255.255.255.255", Kind::Address(AddressKind::Special)),
            ("240.0.0.1", Kind::Address(AddressKind::Special)),
            ("198.18.0.1", Kind::Address(AddressKind::Special)),
            ("203.0.113.9", Kind::Address(AddressKind::Special)),
            ("ff02::1", Kind::Address(AddressKind::Special)),
            ("2001::1", Kind::Address(AddressKind::Special)),
            ("2001:db8::1", Kind::Address(AddressKind::Special)),
        ] {
            assert_eq!(judge(&rules, ip), Err(kind), "{ip}");
        }
    }

    #[test]
    fn options_allow_more() {
        let all = Rules::new(true, &[], &[], &[]);
        for ip in ["127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "fd12::1"] {
            assert_eq!(judge(&all, ip), Ok(()), "{ip}");
        }
        assert_eq!(judge(&all, "169.254.169.254"), Err(Kind::Address(AddressKind::LinkLocal)));
        assert_eq!(judge(&all, "0.0.0.0"), Err(Kind::Address(AddressKind::Special)));

        let network = Destination::Network("10.1.0.0/16".parse().unwrap());
        let some = Rules::new(false, &[network, Destination::Host("wiki.intern".to_owned())], &[8443], &[]);
        assert_eq!(judge(&some, "10.1.2.3"), Ok(()));
        assert_eq!(judge(&some, "10.2.2.3"), Err(Kind::Address(AddressKind::Private)));
        let addr: SocketAddr = "10.9.9.9:80".parse().unwrap();
        assert_eq!(some.may_connect("Wiki.Intern.", addr), Ok(()));
        assert_eq!(some.may_connect("xwiki.intern", addr), Err(Kind::Address(AddressKind::Private)));
        assert!(some.may_tunnel(443) && some.may_tunnel(8443) && !some.may_tunnel(25));
    }

    #[test]
    fn the_proxy_does_not_reach_itself() {
        let listening =
            |addr: &str| Rules::new(true, &[], &[], &["[2001::1]:81".parse().unwrap(), addr.parse().unwrap()]);
        let rules = listening("0.0.0.0:80");
        assert_eq!(judge(&rules, "127.0.0.1"), Err(Kind::Itself));
        assert_eq!(judge(&rules, "::ffff:127.0.0.1"), Err(Kind::Itself));
        let rules = listening("8.8.8.8:80");
        assert_eq!(judge(&rules, "8.8.8.8"), Err(Kind::Itself));
        assert_eq!(judge(&rules, "127.0.0.1"), Ok(()));
    }

    #[test]
    fn only_allowed_clients_are_admitted() {
        let networks = ["192.168.1.0/24".parse().unwrap()];
        for (ip, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("192.168.1.9", true),
            ("::ffff:192.168.1.9", true),
            ("8.8.8.8", false),
        ] {
            assert_eq!(admits(&networks, ip.parse::<IpAddr>().unwrap()), expected, "{ip}");
        }
    }
}
