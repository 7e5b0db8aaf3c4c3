//! The fields that tell upstreams about clients: `Forwarded` (RFC 7239) and the older fields
//! `X-Forwarded-…`.
//!
//! Upstreams trust these fields: they use them for access control and in logs. So the proxy removes
//! a client's own fields, unless the client is a trusted proxy; then it keeps them and adds to
//! them. Some programs take `X_Forwarded_For` for `X-Forwarded-For`, so all spellings are treated
//! alike.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::http::Client;
use crate::proxy::rules;

/// The fields to send, and the proxies to trust.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwarding {
    /// Proxies in front of this one.
    pub(crate) trusted: Vec<IpNet>,
    pub(crate) is_silent: bool,
}

impl Forwarding {
    /// Corrects the fields of a request from `client` for `host`.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, client: &Client, host: Option<&Authority>) {
        let ip = client.addr.ip().to_canonical();
        let is_trusted = !self.is_silent && self.trusted.iter().any(|network| network.contains(&ip));
        clean(headers, is_trusted);
        if self.is_silent {
            return;
        }
        let proto = if client.is_secure { "https" } else { "http" };
        append(headers, X_FORWARDED_FOR, &ip.to_string());
        headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
        append(headers, FORWARDED, &element(ip, proto, host));
    }
}

/// Removes fields that no trusted proxy vouches for.
fn clean(headers: &mut HeaderMap, is_trusted: bool) {
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| is_taken_out(name.as_str(), is_trusted)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

fn is_taken_out(name: &str, is_trusted: bool) -> bool {
    let is_odd = name.contains('_');
    let name = name.replace('_', "-");
    let is_of_a_client = name == FORWARDED.as_str() || name == "x-real-ip" || name.starts_with("x-forwarded-");
    is_of_a_client && (is_odd || !is_trusted)
}

/// Appends to a list, as one field.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let mut list: Vec<u8> = Vec::new();
    for before in headers.get_all(&name) {
        list.extend_from_slice(before.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(value.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

/// One hop (RFC 7239, section 4). A host may contain a colon, and is quoted then.
fn element(ip: IpAddr, proto: &str, host: Option<&Authority>) -> String {
    let mut text = match ip {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    if let Some(host) = host {
        let is_token = host.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let quote = if is_token { "" } else { "\"" };
        text.push_str(&format!(";host={quote}{host}{quote}"));
    }
    text.push_str(";proto=");
    text.push_str(proto);
    text
}

/// Whether a client is admitted: all are if no network is named.
pub(crate) fn admits(networks: &[IpNet], client: IpAddr) -> bool {
    networks.is_empty() || rules::admits(networks, client)
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

#[cfg(test)]
mod tests {
    use http::uri::Authority;
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::Forwarding;
    use crate::http::Client;

    fn applied(
        forwarding: &Forwarding,
        addr: &str,
        is_secure: bool,
        fields: &[(&'static str, &'static str)],
    ) -> String {
        let client = Client { addr: addr.parse().unwrap(), is_secure, color: 1, alternative: None };
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        forwarding.apply(&mut headers, &client, Some(&Authority::from_static("a.example:8080")));
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.join("\n")
    }

    const SPOOFED: [(&str, &str); 9] = [
        ("accept", "*/*"),
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x_forwarded_for", "10.0.0.3"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-prefix", "/evil"),
        ("x-real-ip", "10.0.0.1"),
    ];

    #[test]
    fn fields_from_clients_are_replaced() {
        let text = applied(&Forwarding::default(), "[::ffff:192.0.2.7]:99", false, &SPOOFED);
        assert_eq!(
            text,
            "accept: */*\nforwarded: for=192.0.2.7;host=\"a.example:8080\";proto=http\nx-forwarded-for: 192.0.2.7\n\
             x-forwarded-host: a.example:8080\nx-forwarded-proto: http"
        );
        let text = applied(&Forwarding::default(), "[2001:db8::1]:99", true, &[]);
        assert!(text.starts_with("forwarded: for=\"[2001:db8::1]\";host=\"a.example:8080\";proto=https\n"), "{text}");
    }

    #[test]
    fn fields_from_trusted_proxies_are_kept_and_added_to() {
        let forwarding = Forwarding { trusted: vec!["192.0.2.0/24".parse().unwrap()], is_silent: false };
        let text = applied(&forwarding, "192.0.2.7:99", false, &SPOOFED);
        for line in [
            "forwarded: for=10.0.0.1, for=192.0.2.7;host=\"a.example:8080\";proto=http",
            "x-forwarded-for: 10.0.0.1, 10.0.0.2, 192.0.2.7",
            "x-forwarded-host: evil",
            "x-forwarded-proto: https",
            "x-real-ip: 10.0.0.1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("x_forwarded_for"), "{text}");
        assert!(applied(&forwarding, "192.0.3.7:99", false, &SPOOFED).contains("x-forwarded-for: 192.0.3.7\n"));
    }

    #[test]
    fn no_fields_are_sent_if_none_are_wanted() {
        let forwarding = Forwarding { trusted: vec!["0.0.0.0/0".parse().unwrap()], is_silent: true };
        assert_eq!(applied(&forwarding, "192.0.2.7:99", false, &SPOOFED), "accept: */*");
    }
}
