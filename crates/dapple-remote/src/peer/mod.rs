//! One connection to one host, which all requests to its stages share.

pub(crate) mod connect;
mod link;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple_stage::RemoteError;
use dapple_sync::sync::Semaphore;
use http::uri::Authority;

pub(crate) use link::Link;

use super::encoding::Encoding;
use super::stage::RemoteStage;

/// A host at an address, with one HTTP/2 connection that is made when it is first needed, and again
/// after it has ended.
///
/// Clones, and all stages of one peer, share the connection. The wait after a failed attempt
/// doubles from 50 ms to 5 s ([`PeerBuilder::retry_wait_max`]); meanwhile requests fail at once with [`RemoteError::Unreachable`]. A
/// host that is about to end says so, and the peer sends nothing more on that connection.
///
/// ```
/// use dapple_remote::{Peer, RemoteStage};
///
/// let peer = Peer::new("127.0.0.1:7000")?;
/// let sign: RemoteStage<Vec<u8>, [u8; 16]> = peer.stage("sign");
/// let echo: RemoteStage<String, String> = peer.stage("echo");
/// # let _ = (sign, echo);
/// # Ok::<(), dapple_remote::RemoteError>(())
/// ```
#[derive(Clone)]
pub struct Peer {
    pub(crate) link: Arc<Link>,
}

/// A builder of a peer; see [`Peer::builder`].
#[derive(Clone, Debug)]
pub struct PeerBuilder {
    address: String,
    options: Options,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
    pub(crate) retry_wait_max: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) in_flight_max: usize,
    pub(crate) message_len_max: usize,
    pub(crate) encoding: Encoding,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<dapple_tls::TlsConnector>,
}

impl Peer {
    /// The host at this address, `HOST:PORT`, with the defaults.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Malformed`]: the text is not an address.
    pub fn new(address: impl Into<String>) -> Result<Peer, RemoteError> {
        Peer::builder(address).build()
    }

    /// As [`new`](Self::new), with options.
    pub fn builder(address: impl Into<String>) -> PeerBuilder {
        PeerBuilder { address: address.into(), options: Options::default() }
    }

    /// The stage of this name at the host.
    pub fn stage<Req, Resp>(&self, name: impl AsRef<str>) -> RemoteStage<Req, Resp> {
        RemoteStage::of(self.clone(), name.as_ref())
    }

    /// Connects if there is no connection, and waits until the host has said that it takes
    /// requests: a health check. Senders need not call it.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the attempt continues for other callers.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unreachable`].
    pub async fn connect(&self) -> Result<(), RemoteError> {
        let connection = self.link.connection().await;
        connection.map(drop).map_err(|down| down.error(self.address()))
    }

    /// The address, as the program gave it.
    pub fn address(&self) -> &str {
        self.link.address()
    }

    /// Whether there is a connection, and the host takes requests.
    pub fn is_connected(&self) -> bool {
        self.link.is_up()
    }
}

impl PeerBuilder {
    /// The limit for connecting, until the host has said that it takes requests; 5 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// The longest wait between two attempts to connect; 5 s by default. A host that comes back gets requests after that
    /// time at the latest, if there are some.
    #[must_use]
    pub fn retry_wait_max(mut self, wait: Duration) -> Self {
        self.options.retry_wait_max = wait;
        self
    }

    /// The time limit of a request without an earlier deadline; 30 s by default, `None` for no
    /// limit.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.timeout = timeout.into();
        self
    }

    /// The most requests in flight, at least 1; 100 by default. At the limit `poll_ready` waits.
    #[must_use]
    pub fn in_flight_max(mut self, max: usize) -> Self {
        self.options.in_flight_max = max.max(1);
        self
    }

    /// The longest request that is sent and the longest reply that is read, in bytes; 4 MiB by
    /// default.
    #[must_use]
    pub fn message_len_max(mut self, max: usize) -> Self {
        self.options.message_len_max = max;
        self
    }

    /// The encoding of messages; [`Encoding::Postcard`] by default.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.options.encoding = encoding;
        self
    }

    /// Encrypts the connection; the certificate must be for the host in the address. Sets ALPN.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, connector: dapple_tls::TlsConnector) -> Self {
        self.options.tls = Some(connector);
        self
    }

    /// Makes the peer, which connects at its first use.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Malformed`]: the address is not valid.
    pub fn build(self) -> Result<Peer, RemoteError> {
        let authority = parse_address(&self.address).map_err(RemoteError::Malformed)?;
        Ok(Peer { link: Arc::new(Link::new(self.address, authority, self.options)) })
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(5),
            retry_wait_max: Duration::from_secs(5),
            timeout: Some(Duration::from_secs(30)),
            in_flight_max: 100,
            message_len_max: 4 << 20,
            encoding: Encoding::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Options {
    pub(crate) fn permits(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.in_flight_max.min(Semaphore::MAX_PERMITS)))
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("address", &self.address()).field("is_connected", &self.is_connected()).finish()
    }
}

/// `HOST:PORT`, with a valid port.
pub(crate) fn parse_address(address: &str) -> Result<Authority, String> {
    let wrong =
        || format!("`{}` is no address; write HOST:PORT, such as 10.0.0.1:7000 or [::1]:7000", address.escape_debug());
    let authority: Authority = address.parse().map_err(|_| wrong())?;
    let is_plain = !authority.host().is_empty() && !address.contains('@');
    match authority.port_u16() {
        Some(1..) if is_plain => Ok(authority),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["127.0.0.1:80", "[::1]:7000", "stages.example:65535", "localhost:1"] {
            assert!(parse_address(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost", ":80", "a:0", "a:65536", "u@a:80", "http://a:80", "a:80/b", "a b:80", "::1:80"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }
}
