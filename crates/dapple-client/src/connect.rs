//! From the name of a server to a stream.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dapple_io::net::{self, TcpStream, resolve};
use dapple_io::time::{Instant, timeout_at};
#[cfg(feature = "tls")]
use dapple_tls::TlsConnector;
use rustix::net::sockopt;

use crate::{ConnectError, Origin, Scheme, Stream};

/// Decides for each address of a host whether the client may connect to it.
pub type Rule = Arc<dyn Fn(&Origin, SocketAddr) -> bool + Send + Sync>;

/// How connections are made.
#[derive(Clone)]
pub struct Dial {
    /// The configurations of TLS: for HTTP/2 or HTTP/1.1, and for HTTP/1.1 only.
    #[cfg(feature = "tls")]
    tls: Option<[TlsConnector; 2]>,
    pub(crate) limit: Duration,
    /// The time without traffic after which the kernel asks whether the server is still there.
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) rule: Option<Rule>,
}

impl Dial {
    /// With TLS. ALPN is set here.
    #[cfg(feature = "tls")]
    pub fn new(tls: TlsConnector, limit: Duration) -> Dial {
        let http1 = tls.clone().alpn(["http/1.1"]);
        Dial { tls: Some([tls.alpn(["h2", "http/1.1"]), http1]), limit, keep_alive: None, rule: None }
    }

    /// Without TLS: `https` servers cannot be reached.
    pub fn plain(limit: Duration) -> Dial {
        Dial {
            #[cfg(feature = "tls")]
            tls: None,
            limit,
            keep_alive: None,
            rule: None,
        }
    }

    /// Connects only to addresses that the rule allows.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Dial {
        self.rule = Some(rule);
        self
    }

    /// Looks the host up, races the addresses that the rule allows, and does the TLS handshake, all
    /// within the limit. It connects only to addresses that the rule has seen: there is no second
    /// look-up.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts and closes their descriptors.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection.
    pub async fn connect(&self, origin: &Origin, only_http1: bool) -> Result<Stream, ConnectError> {
        let deadline = Instant::now() + self.limit;
        let host = origin.name();
        let ips = timeout_at(deadline, resolve(host)).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        let ips = ips.map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => ConnectError::LookupTimedOut { host: host.to_owned() },
            _ => ConnectError::Unknown { host: host.to_owned(), source },
        })?;
        let connecting = async {
            let stream = self.reach(origin, ips).await?;
            match origin.scheme {
                Scheme::Https => self.encrypt(origin, stream, only_http1).await,
                Scheme::Http | Scheme::H2c => Ok(Stream::plain(stream)),
            }
        };
        timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err(self.late(origin)))
    }

    async fn reach(&self, origin: &Origin, ips: Vec<IpAddr>) -> Result<TcpStream, ConnectError> {
        let mut refused = None;
        let mut addrs: Vec<_> = ips.into_iter().map(|ip| SocketAddr::new(ip, origin.port)).collect();
        if let Some(rule) = &self.rule {
            addrs.retain(|addr| {
                let is_allowed = rule(origin, *addr);
                if !is_allowed {
                    refused = Some(addr.ip());
                }
                is_allowed
            });
        }
        let (host, port) = (origin.name(), origin.port);
        if addrs.is_empty() {
            return Err(match refused {
                Some(ip) => ConnectError::Forbidden(ip),
                None => ConnectError::Unknown { host: host.to_owned(), source: io::Error::other("it has no address") },
            });
        }
        let unreachable = |source| ConnectError::Unreachable { host: host.to_owned(), port, source };
        let stream = net::Connector::new().connect(addrs).await.map_err(unreachable)?;
        // Other networks than the kernel's have no such probes.
        if let Some(idle) = self.keep_alive
            && stream.has_descriptor()
        {
            keep_alive(&stream, idle).map_err(|error| unreachable(error.into()))?;
        }
        Ok(stream)
    }

    #[cfg(feature = "tls")]
    async fn encrypt(&self, origin: &Origin, stream: TcpStream, only_http1: bool) -> Result<Stream, ConnectError> {
        let tls = self.tls.as_ref().ok_or_else(|| ConnectError::Address(origin.to_string()))?;
        let encrypting = tls[usize::from(only_http1)].connect(origin.certified_name(), stream, self.limit);
        encrypting.await.map(Stream::encrypted).map_err(|error| self.unencrypted(origin, error))
    }

    #[cfg(not(feature = "tls"))]
    async fn encrypt(&self, origin: &Origin, _stream: TcpStream, _only_http1: bool) -> Result<Stream, ConnectError> {
        Err(ConnectError::Address(origin.to_string()))
    }

    #[cfg(feature = "tls")]
    fn unencrypted(&self, origin: &Origin, source: dapple_tls::Error) -> ConnectError {
        use dapple_tls::Error::{Name, Protocol, TimedOut};
        use dapple_tls::rustls::Error::{InvalidCertificate, NoCertificatesPresented};
        let host = origin.certified_name().to_owned();
        match source {
            TimedOut(_) => self.late(origin),
            Protocol(InvalidCertificate(_) | NoCertificatesPresented) | Name(_) => {
                ConnectError::Certificate { host, source }
            }
            _ => ConnectError::Tls { host, source },
        }
    }

    fn late(&self, origin: &Origin) -> ConnectError {
        ConnectError::TimedOut { host: origin.name().to_owned(), limit: self.limit }
    }
}

/// Has the kernel probe the server after `idle` without traffic. The connection ends after three
/// probes without an answer.
fn keep_alive(stream: &TcpStream, idle: Duration) -> Result<(), rustix::io::Errno> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, (idle / 3).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("limit", &self.limit).field("has_rule", &self.rule.is_some()).finish()
    }
}
