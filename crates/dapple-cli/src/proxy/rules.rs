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

/// The kind of a forbidden address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This machine.
    Loopback,
    /// A network behind a router of its own.
    Private,
    /// The local link; in clouds, it leads to the machine's own credentials.
    LinkLocal,
    /// An address of many hosts, for documentation, or not assigned.
    Special,
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
        let Some(kind) = AddressKind::of(ip).map(Kind::from) else { return self.unless_itself(ip, addr.port()) };
        let host = host.trim_end_matches('.');
        let is_named = self.networks.iter().any(|network| network.contains(&ip))
            || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
        let is_private = matches!(kind, Kind::Loopback | Kind::Private);
        match is_named || (self.allow_private && is_private) {
            true => self.unless_itself(ip, addr.port()),
            false => Err(kind),
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
            Kind::Loopback => "it is the machine that the proxy runs on; --allow-private allows that",
            Kind::Private => {
                "it is in a private network; --allow-private allows all of these, --allow-destination \
                one"
            }
            Kind::LinkLocal => {
                "it is a link-local address or the metadata of a cloud; only --allow-destination with that address \
                allows it"
            }
            Kind::Special => "it is not an address of one host on the internet; only --allow-destination allows it",
            Kind::Itself => "it is this proxy itself",
        }
    }
}

impl From<AddressKind> for Kind {
    fn from(kind: AddressKind) -> Kind {
        match kind {
            AddressKind::Loopback => Kind::Loopback,
            AddressKind::Private => Kind::Private,
            AddressKind::LinkLocal => Kind::LinkLocal,
            AddressKind::Special => Kind::Special,
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

    use super::{Destination, Kind, Rules, admits};

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
            ("127.0.0.1", Kind::Loopback),
            ("127.255.255.255", Kind::Loopback),
            ("::1", Kind::Loopback),
            ("::ffff:127.0.0.1", Kind::Loopback),
            ("64:ff9b::7f00:1", Kind::Loopback),
            ("2002:7f00:1::", Kind::Loopback),
            ("10.1.2.3", Kind::Private),
            ("172.16.0.1", Kind::Private),
            ("172.31.255.255", Kind::Private),
            ("192.168.0.1", Kind::Private),
            ("100.64.0.1", Kind::Private),
            ("100.100.100.200", Kind::Private),
            ("::ffff:10.0.0.1", Kind::Private),
            ("fd12::1", Kind::Private),
            ("fec0::1", Kind::Private),
            ("169.254.169.254", Kind::LinkLocal),
            ("::ffff:169.254.169.254", Kind::LinkLocal),
            ("168.63.129.16", Kind::LinkLocal),
            ("fe80::1", Kind::LinkLocal),
            ("fd00:ec2::254", Kind::LinkLocal),
            ("0.0.0.0", Kind::Special),
            ("::", Kind::Special),
            ("::7f00:1", Kind::Special),
            ("224.0.0.1", Kind::Special),
            ("255.255.255.255", Kind::Special),
            ("240.0.0.1", Kind::Special),
            ("198.18.0.1", Kind::Special),
            ("203.0.113.9", Kind::Special),
            ("ff02::1", Kind::Special),
            ("2001::1", Kind::Special),
            ("2001:db8::1", Kind::Special),
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
        assert_eq!(judge(&all, "169.254.169.254"), Err(Kind::LinkLocal));
        assert_eq!(judge(&all, "0.0.0.0"), Err(Kind::Special));

        let network = Destination::Network("10.1.0.0/16".parse().unwrap());
        let some = Rules::new(false, &[network, Destination::Host("wiki.intern".to_owned())], &[8443], &[]);
        assert_eq!(judge(&some, "10.1.2.3"), Ok(()));
        assert_eq!(judge(&some, "10.2.2.3"), Err(Kind::Private));
        let addr: SocketAddr = "10.9.9.9:80".parse().unwrap();
        assert_eq!(some.may_connect("Wiki.Intern.", addr), Ok(()));
        assert_eq!(some.may_connect("xwiki.intern", addr), Err(Kind::Private));
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
