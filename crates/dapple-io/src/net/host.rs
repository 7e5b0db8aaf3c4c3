//! The forms in which a program may write a host.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A host that needs no look-up, or a name that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    Addresses(Vec<SocketAddr>),
    Name(&'a str),
}

impl Host<'_> {
    /// Parses an address, in brackets or not and perhaps with a zone; `localhost`; or a name.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the reason.
    pub(crate) fn parse(host: &str, port: u16) -> io::Result<Host<'_>> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Host::Addresses(vec![(ip, port).into()]));
        }
        if let Some((ip, zone)) = bare.split_once('%')
            && let Ok(ip) = ip.parse::<Ipv6Addr>()
        {
            return Ok(Host::Addresses(vec![SocketAddrV6::new(ip, port, 0, zone_id(zone)?).into()]));
        }
        if is_localhost(host) {
            let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(Host::Addresses(loopback.map(|ip| (ip, port).into()).to_vec()));
        }
        check_name(host)?;
        Ok(Host::Name(host))
    }
}

/// Loopback by definition, whatever servers say (RFC 6761).
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost") && host.split('.').all(|label| !label.is_empty())
}

/// Checks everything that needs no look-up. Names in letters other than ASCII are left to the
/// resolver.
fn check_name(host: &str) -> io::Result<()> {
    let bad = |what: fmt::Arguments<'_>| {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is not a host name: {what}", host.escape_debug()),
        ))
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    if labels.is_empty() {
        return bad(format_args!("it is empty"));
    }
    if labels.len() > 253 {
        return bad(format_args!("it has {} bytes, and 253 are allowed", labels.len()));
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && port.parse::<u16>().is_ok()
        && !name.contains(':')
    {
        return bad(format_args!("it has a port; the host is `{name}`"));
    }
    if host.contains("://") {
        return bad(format_args!("it is a URL; give the host and the port in it"));
    }
    if let Some(wrong) = host.chars().find(|&letter| !is_allowed(letter)) {
        return bad(format_args!("it has `{}` in it", wrong.escape_debug()));
    }
    if let Some(label) = labels.split('.').find(|label| label.is_empty() || label.len() > 63 && label.is_ascii()) {
        return match label {
            "" => bad(format_args!("there is nothing between two dots")),
            long => bad(format_args!("a part has {} letters, and 63 are allowed", long.len())),
        };
    }
    Ok(())
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') || !letter.is_ascii() && !letter.is_control()
}

/// The number of an interface, which may be written as its name.
fn zone_id(zone: &str) -> io::Result<u32> {
    if let Ok(number) = zone.parse() {
        return Ok(number);
    }
    let index = CString::new(zone).map_or(0, |name| {
        // SAFETY: the name ends with a zero and lives until the call returns.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    });
    match index {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no network interface `{zone}`"))),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(host: &str) -> Vec<SocketAddr> {
        match Host::parse(host, 80) {
            Ok(Host::Addresses(addresses)) => addresses,
            other => panic!("{host}: {other:?}"),
        }
    }

    #[test]
    fn addresses_and_localhost_need_no_look_up() {
        assert_eq!(addresses("127.0.0.1"), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(addresses("[::1]"), addresses("::1"));
        for localhost in ["localhost", "LocalHost.", "a.b.localhost"] {
            assert_eq!(addresses(localhost).len(), 2, "{localhost}");
        }
        let zoned = addresses("[fe80::1%7]");
        assert!(matches!(zoned[0], SocketAddr::V6(addr) if addr.scope_id() == 7));
        assert_eq!(addresses("fe80::1%lo").len(), 1);
    }

    #[test]
    fn names_are_left_to_the_resolver() {
        for name in ["example.com", "example.com.", "a", "_srv.example", "1.2.3", "bücher.example", "xlocalhost"] {
            assert_eq!(Host::parse(name, 80).unwrap(), Host::Name(name));
        }
    }

    #[test]
    fn the_error_says_why_a_text_is_no_name() {
        let long = "a".repeat(64);
        let longer = format!("{}.com", "a.".repeat(130));
        for (bad, why) in [
            ("", "empty"),
            (".", "empty"),
            ("a..b", "between two dots"),
            ("example.com:80", "has a port; the host is `example.com`"),
            ("http://example.com/", "URL"),
            ("exa mple", "has ` ` in it"),
            ("nul\0", "has `\\0` in it"),
            (long.as_str(), "64 letters"),
            (longer.as_str(), "bytes"),
            ("fe80::1%nowhere", "no network interface"),
            ("1::2::3", "has `:` in it"),
        ] {
            let error = Host::parse(bad, 80).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(why), "{bad}: {error}");
        }
    }
}
