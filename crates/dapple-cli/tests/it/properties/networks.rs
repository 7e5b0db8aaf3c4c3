//! Networks, hosts and addresses in options, and the rules about connecting to them.
//!
//! The input is an address of 16 bytes, and lines of options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use self::destination::{Destination, destination, network};
use self::rules::{Rules, admits};
use dapple_serve::command_line::host_and_port;

#[path = "../../../src/proxy/destination.rs"]
mod destination;
#[allow(dead_code, reason = "only the deciding code of this file is used")]
#[path = "../../../src/proxy/rules.rs"]
mod rules;

/// A parsed option prints as text that parses the same, and no address is reached that no option
/// allows.
pub(super) fn networks(data: &[u8]) {
    let Some((ip, options)) = data.split_first_chunk::<16>() else { return };
    let Ok(options) = std::str::from_utf8(options) else { return };
    let mut destinations = Vec::new();
    for line in options.lines() {
        if let Ok((host, port)) = host_and_port(line) {
            let again = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            assert!(!host.is_empty(), "{line:?}");
            assert_eq!(host_and_port(&again), Ok((host, port)), "{line:?}");
        }
        let Ok(read) = destination(line) else { continue };
        let again = match &read {
            Destination::Network(network) => network.to_string(),
            Destination::Host(host) => host.clone(),
        };
        assert!(!again.is_empty(), "{line:?}");
        assert_eq!(destination(&again).as_ref(), Ok(&read), "{line:?}");
        assert_eq!(network(&again).is_ok(), matches!(read, Destination::Network(_)), "{line:?}");
        destinations.push(read);
    }
    let v6 = Ipv6Addr::from(*ip);
    let v4 = Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]);
    let strict = Rules::new(false, &[], &[], &[]);
    judged(v6.into(), &strict, &destinations);
    judged(v4.into(), &strict, &destinations);
    let [a, b, c, d] = v4.octets();
    let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let clothes =
        [[0, 0, 0, 0, 0, 0xffff, high, low], [0x64, 0xff9b, 0, 0, 0, 0, high, low], [0x2002, high, low, 0, 0, 0, 0, 1]];
    for clothed in clothes.map(|words| IpAddr::from(Ipv6Addr::from(words))) {
        let judge = |ip| strict.may_connect("h", SocketAddr::new(ip, 80));
        assert_eq!(judge(clothed), judge(v4.into()), "{clothed} is {v4}");
    }
}

/// An address that no option allows belongs to the public internet; one that a network allows is in
/// that network.
fn judged(ip: IpAddr, strict: &Rules, destinations: &[Destination]) {
    let (host, addr) = ("h.example", SocketAddr::new(ip, 80));
    let is_public = strict.may_connect(host, addr).is_ok();
    assert!(!is_public || !is_special(ip), "{ip}");
    let some = Rules::new(false, destinations, &[], &[]);
    let plain = ip.to_canonical();
    // A translated address is judged by the address inside.
    if matches!(plain, IpAddr::V6(v6) if matches!(v6.segments(), [0x2002, ..] | [0x64, 0xff9b, ..])) {
        return;
    }
    let networks: Vec<IpNet> = destinations
        .iter()
        .filter_map(|destination| match destination {
            Destination::Network(network) => Some(*network),
            Destination::Host(_) => None,
        })
        .collect();
    let is_in = networks.iter().any(|network| network.contains(&plain));
    let is_host = destinations.contains(&Destination::Host(host.to_owned()));
    let may = some.may_connect(host, addr).is_ok();
    assert_eq!(may, is_public || is_in || is_host, "{ip}");
    assert_eq!(admits(&networks, ip), plain.is_loopback() || is_in, "{ip}");
    assert_eq!(some.may_connect("H.EXAMPLE.", addr).is_ok(), may, "{ip}");
}

/// The standard library's view.
fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_multicast()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_documentation()
        }
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
        }
    }
}
