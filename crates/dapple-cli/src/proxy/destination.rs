//! Networks and hosts in options.

use std::net::IpAddr;

use ipnet::IpNet;

/// A destination in `--allow-destination`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// All addresses of a network.
    Network(IpNet),
    /// A host by its name, in lower case, whatever its addresses are.
    Host(String),
}

/// Parses a network in CIDR notation, or one address.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let address = |text: &str| text.parse::<IpAddr>().ok().map(IpNet::from);
    let advice = "write a network or an address, for example 192.168.1.0/24, 10.1.2.3 or fd00::/8";
    text.parse().ok().or_else(|| address(text)).ok_or_else(|| advice.to_owned())
}

pub(crate) fn destination(text: &str) -> Result<Destination, String> {
    // A final point marks a complete name, and means nothing after an address.
    let name = text.trim_end_matches('.');
    if let Ok(network) = network(name) {
        return Ok(Destination::Network(network));
    }
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_name {
        true => Ok(Destination::Host(name.to_ascii_lowercase())),
        false => Err("write a network, an address or a host, for example 10.0.0.0/8 or wiki.example".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Destination, destination, network};

    #[test]
    fn networks_and_hosts() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        assert!(network("10.0.0.0/33").is_err() && network("all").is_err());
        assert_eq!(destination("Wiki.Intern."), Ok(Destination::Host("wiki.intern".to_owned())));
        assert!(matches!(destination("fd00::/8"), Ok(Destination::Network(_))));
        assert!(matches!(destination("127.0.0.1."), Ok(Destination::Network(_))));
        for bad in ["", ".", "a b", "http://x", "a:80", "10.0.0.0/99"] {
            assert!(destination(bad).is_err(), "{bad}");
        }
    }
}
