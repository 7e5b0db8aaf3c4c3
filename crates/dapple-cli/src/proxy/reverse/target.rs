//! An upstream in `--to`.

use http::uri::Authority;

pub(crate) use dapple_client::{Origin as Target, Scheme};

/// Parses one target of `--to`, for clap.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    let advice = "write http://HOST:PORT, https://HOST or h2c://HOST:PORT, for example http://127.0.0.1:9000";
    let text = text.trim();
    let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("{text:?} has no scheme; {advice}"))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        "h2c" => Scheme::H2c,
        other => return Err(format!("{other}:// is not supported; {advice}")),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err(format!("{text:?} has a path, but the paths come from clients; leave it out: {advice}"));
    }
    if authority.contains('@') {
        return Err(format!("{text:?} has a user in it; {advice}"));
    }
    let is_bare = |host: &str| !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_bare(host) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (host, port.ok_or_else(|| format!("{text:?} has an invalid port (1 to 65535); {advice}"))?)
        }
        _ => (authority, scheme.port()),
    };
    if !is_host(host) {
        return Err(format!("{text:?} names no host; {advice}"));
    }
    Ok(Target { scheme, host: host.to_ascii_lowercase(), port })
}

/// Whether this is a name, an address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    let is_v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().is_ok();
    let is_name = || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => is_v6(inner),
        None => !host.is_empty() && is_name(),
    };
    is_host && Authority::try_from(host).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Scheme, target};

    #[test]
    fn addresses_of_upstreams() {
        for (text, shown, authority) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", "127.0.0.1:9000"),
            ("http://App.Intern/", "http://app.intern:80", "app.intern"),
            ("https://[::1]", "https://[::1]:443", "[::1]"),
            ("H2C://[::1]:81/", "h2c://[::1]:81", "[::1]:81"),
            (" h2c://a_b ", "h2c://a_b:80", "a_b"),
        ] {
            let target = target(text).unwrap();
            assert_eq!(
                (target.to_string().as_str(), target.authority().unwrap().as_str()),
                (shown, authority),
                "{text}"
            );
        }
        assert_eq!(target("https://[::1]:8443").map(|target| (target.scheme, target.name().to_owned())), {
            Ok((Scheme::Https, "::1".to_owned()))
        });
        for (text, part) in [
            ("", "no scheme"),
            ("127.0.0.1:9000", "no scheme"),
            ("ftp://a", "ftp:// is not supported"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://::1:80", "no host"),
            ("http://[::1", "no host"),
            ("http://a b", "no host"),
            ("http://a:0", "an invalid port"),
            ("http://a:65536", "an invalid port"),
            ("http://a:", "an invalid port"),
            ("http://a/path", "has a path"),
            ("http://a?x", "has a path"),
            ("http://me@a", "a user"),
        ] {
            let message = target(text).unwrap_err();
            assert!(message.contains(part) && message.contains("http://127.0.0.1:9000"), "{text}: {message}");
        }
    }
}
