//! The server of a connection, and its protocol.

use std::fmt;

use http::Uri;
use http::uri::{Authority, InvalidUri};

use crate::ConnectError;

/// A server: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The protocol.
    pub scheme: Scheme,
    /// In lower case; an address of IPv6 in brackets.
    pub host: String,
    /// From 1 to 65,535.
    pub port: u16,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP/1.1 without encryption.
    Http,
    /// HTTP/2 without encryption, by prior knowledge.
    H2c,
    /// With TLS: HTTP/2 or HTTP/1.1, as the server chooses (ALPN).
    Https,
}

impl Origin {
    /// The server that a URI names.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Address`]: it has no host, another scheme than `http` and `https`, or port 0.
    pub fn of(uri: &Uri) -> Result<Origin, ConnectError> {
        let wrong = || ConnectError::Address(uri.to_string());
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(wrong)?;
        // `Authority::port` has none if the number is too large.
        let behind_user = authority.as_str().rsplit('@').next().unwrap_or_default();
        let port = match behind_user.strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':')) {
            None | Some("") => scheme.port(),
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
        };
        Ok(Origin { scheme, host: authority.host().to_ascii_lowercase(), port })
    }

    /// Host and port for the field `Host`: without the default port of the scheme.
    ///
    /// # Errors
    ///
    /// The host cannot stand in a request.
    pub fn authority(&self) -> Result<Authority, InvalidUri> {
        let text = match self.port == self.scheme.port() {
            true => self.host.clone(),
            false => format!("{}:{}", self.host, self.port),
        };
        Authority::try_from(text)
    }

    /// The host for a look-up: an address of IPv6 has no brackets.
    pub fn name(&self) -> &str {
        self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host)
    }

    /// The host for a certificate: a name without the dot at its end.
    #[cfg(any(feature = "tls", test))]
    pub(crate) fn certified_name(&self) -> &str {
        self.name().strip_suffix('.').unwrap_or(self.name())
    }
}

impl Scheme {
    /// The port of a URI without one.
    pub fn port(self) -> u16 {
        if self == Scheme::Https { 443 } else { 80 }
    }

    /// `http`, `h2c` or `https`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::H2c => "h2c",
            Scheme::Https => "https",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.name(), self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, Scheme};

    #[test]
    fn uris_name_servers() {
        for (uri, shown, authority, certified) in [
            ("http://A.test/x?y", "http://a.test:80", "a.test", "a.test"),
            ("https://a.test.:444", "https://a.test.:444", "a.test.:444", "a.test"),
            ("https://[::1]/", "https://[::1]:443", "[::1]", "::1"),
            ("http://127.0.0.1:81", "http://127.0.0.1:81", "127.0.0.1:81", "127.0.0.1"),
            ("http://me:1@a.test:/", "http://a.test:80", "a.test", "a.test"),
        ] {
            let origin = Origin::of(&uri.parse().unwrap()).unwrap();
            assert_eq!(origin.to_string(), shown);
            assert_eq!((origin.authority().unwrap().as_str(), origin.certified_name()), (authority, certified));
        }
        for uri in ["/x", "ftp://a.test/", "a.test:80", "http://a.test:0/", "http://a.test:99999/"] {
            let wrong = Origin::of(&uri.parse().unwrap()).unwrap_err().to_string();
            assert!(wrong.contains(uri) && wrong.contains("write http://HOST"), "{wrong}");
        }
        assert_eq!(Scheme::H2c.port(), 80);
    }
}
