//! The cache address of a response in a reverse proxy: all facts about the client's view of the
//! address that upstreams get.
//!
//! Pages that name themselves (links, redirects from `http` to `https`) take their own address from
//! these fields. If two requests that differ in them shared one cached response, one client could
//! choose what another gets.
//!
//! | field for upstreams | part of the key |
//! |---|---|
//! | `X-Forwarded-Proto` and `X-Forwarded-Host`, of this proxy or of a trusted one before it | the address |
//! | `Host`, if it differs | scope |
//! | any other `X-Forwarded-…` but `-For`, and `host` and `proto` of `Forwarded`, of a trusted proxy | scope |

use std::fmt::Write;

use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use super::upstream::Outgoing;
use crate::proxy::cache::Address;

/// The address of a request in the form that goes to upstreams; `None` if it cannot be cached,
/// because it names no host, or a trusted proxy gives an invalid address. `is_secure` counts if
/// upstreams get no such facts.
pub(super) fn address(outgoing: &Outgoing, host: Option<&str>, is_secure: bool) -> Option<Address> {
    let headers = &outgoing.headers;
    let scheme = match told(headers, "x-forwarded-proto")? {
        Some(proto) => ["http", "https"].into_iter().find(|known| proto.eq_ignore_ascii_case(known))?,
        None => ["http", "https"][usize::from(is_secure)],
    };
    let host = authority(host?, scheme)?;
    let named = match told(headers, "x-forwarded-host")? {
        Some(named) => authority(named, scheme)?,
        None => host.clone(),
    };
    let mut scope = String::new();
    if named != host {
        let _ = writeln!(scope, "{host}");
    }
    for (name, value) in headers {
        let name = name.as_str();
        if name.starts_with("x-forwarded-") && !OF_THE_ADDRESS.contains(&name) {
            let _ = writeln!(scope, "{name}: {}", value.as_bytes().escape_ascii());
        }
    }
    forwarded(headers, &mut scope);
    let target = outgoing.target.to_string();
    Some(Address { scope, base: format!("{scheme}://{named}"), target })
}

/// The value of a field that occurs at most once; `None` if it occurs more often, or is not text.
fn told<'h>(headers: &'h HeaderMap, name: &str) -> Option<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose().ok()?;
    values.next().is_none().then_some(value)
}

/// Host and port in one spelling, without the default port; `None` if the port is invalid or oddly
/// written: servers see it as it is, and may repeat it in a response that is not for others.
fn authority(text: &str, scheme: &str) -> Option<String> {
    let authority = Authority::try_from(text).ok().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host().to_ascii_lowercase();
    let understood = if scheme == "https" { 443 } else { 80 };
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => None,
        written => Some(authority.port_u16().filter(|port| written == format!(":{port}"))?),
    };
    Some(port.filter(|port| *port != understood).map_or(host.clone(), |port| format!("{host}:{port}")))
}

/// The host and scheme that earlier proxies name. Skips the last element, which is this proxy's own
/// and adds nothing.
fn forwarded(headers: &HeaderMap, scope: &mut String) {
    let Some(value) = headers.get("forwarded") else { return };
    let own = value.as_bytes().windows(2).rposition(|pair| pair == b", ").unwrap_or(0);
    let parts = value.as_bytes()[..own].split(|byte| b",;".contains(byte)).map(<[u8]>::trim_ascii);
    for part in parts {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or(part);
        if ["host", "proto"].iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            let _ = writeln!(scope, "forwarded: {}", part.escape_ascii());
        }
    }
}

const OF_THE_ADDRESS: [&str; 3] = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

#[cfg(test)]
mod tests {
    use http::uri::{Authority, PathAndQuery};
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::address;
    use crate::http::Client;
    use crate::proxy::reverse::forwarded::Forwarding;
    use crate::proxy::reverse::upstream::Outgoing;

    /// Scope and address of `GET /x?y` from a trusted client.
    fn known(host: &'static str, fields: &[(&'static str, &'static str)]) -> Option<(String, String)> {
        let trusted = vec!["192.0.2.0/24".parse().unwrap()];
        let client = Client { addr: "192.0.2.7:99".parse().unwrap(), is_secure: false, color: 1, alternative: None };
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let authority = Authority::try_from(host).ok();
        Forwarding { trusted, is_silent: false }.apply(&mut headers, &client, authority.as_ref());
        let outgoing = Outgoing {
            method: Method::GET,
            target: PathAndQuery::from_static("/x?y"),
            headers,
            authority,
            takes_trailers: false,
            upgrade: None,
            hints: None,
        };
        let address = address(&outgoing, Some(host), false)?;
        Some((address.scope, address.base + &address.target))
    }

    #[test]
    fn an_address_is_what_the_client_sees() {
        let plain = |text: &str| Some((String::new(), text.to_owned()));
        assert_eq!(known("A.example:80", &[]), plain("http://a.example/x?y"));
        assert_eq!(known("a.example:8080", &[]), plain("http://a.example:8080/x?y"));
        let proto = ("x-forwarded-proto", "https");
        assert_eq!(known("a.example:443", &[proto]), plain("https://a.example/x?y"));
        let (scope, address) = known("inner", &[proto, ("x-forwarded-host", "a.example")]).unwrap();
        assert_eq!((scope.as_str(), address.as_str()), ("inner\n", "https://a.example/x?y"));
    }

    #[test]
    fn other_facts_that_upstreams_believe_are_part_of_the_key() {
        let plain = known("a", &[]);
        for field in [
            ("x-forwarded-prefix", "/b"),
            ("x-forwarded-port", "81"),
            ("forwarded", "for=1.2.3.4;HOST=\"b, c\""),
            ("forwarded", "for=1.2.3.4;proto=https, for=10.0.0.1"),
        ] {
            let found = known("a", &[field]);
            assert!(found.is_some() && found != plain, "{field:?}: {found:?}");
        }
        for field in [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4"), ("x-real-ip", "1.2.3.4")] {
            assert_eq!(known("a", &[field]), plain, "{field:?}");
        }
    }

    #[test]
    fn invalid_addresses_are_not_cached() {
        for fields in [
            &[("x-forwarded-host", "a/b")][..],
            &[("x-forwarded-host", "me@a")],
            &[("x-forwarded-host", "a"), ("x-forwarded-host", "b")],
            &[("x-forwarded-proto", "https, http")],
            &[("x-forwarded-proto", "gopher")],
        ] {
            assert_eq!(known("a", fields), None, "{fields:?}");
        }
        // Servers see these as they are, and may name themselves so in a response.
        for host in ["a:99999", "a:", "a:0080", "a:080"] {
            assert_eq!(known(host, &[]), None, "{host}");
            assert_eq!(known("a", &[("x-forwarded-host", host)]), None, "{host}");
        }
    }
}
