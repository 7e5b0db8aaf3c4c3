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

/// A host at an address, with one HTTP/2 connection that is made when it is first needed, and again after it has ended.
///
/// Clones, and all stages of one peer, share the connection. After a failed attempt the next is made only some time later, doubling
/// from 50 ms to 5 s; meanwhile requests fail at once with [`RemoteError::Unreachable`]. A host that is about to end says so,
/// and is sent nothing more on that connection.
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

/// What of a peer can be chosen; see [`Peer::builder`].
#[derive(Clone, Debug)]
pub struct PeerBuilder {
    address: String,
    options: Options,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connect_timeout: Duration,
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
    /// [`RemoteError::Malformed`]: this is no address.
    pub fn new(address: impl Into<String>) -> Result<Peer, RemoteError> {
        Peer::builder(address).build()
    }

    /// As [`new`](Self::new), with choices.
    pub fn builder(address: impl Into<String>) -> PeerBuilder {
        PeerBuilder { address: address.into(), options: Options::default() }
    }

    /// The stage of this name there.
    pub fn stage<Req, Resp>(&self, name: impl AsRef<str>) -> RemoteStage<Req, Resp> {
        RemoteStage::of(self.clone(), name.as_ref())
    }

    /// Connects, if there is no connection, and waits until the host has said that it takes requests. Needed by nobody who sends: to
    /// look whether it is well.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it resolves, the attempt goes on for who needs it.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Unreachable`].
    pub async fn connect(&self) -> Result<(), RemoteError> {
        let connection = self.link.connection().await;
        connection.map(drop).map_err(|down| down.error(self.address()))
    }

    /// The address, as it was given.
    pub fn address(&self) -> &str {
        self.link.address()
    }

    /// Whether there is a connection, and the host takes requests.
    pub fn is_connected(&self) -> bool {
        self.link.is_up()
    }
}

impl PeerBuilder {
    /// How long connecting may take, until the host has said that it takes requests; 5 s if not set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// How long a request may take that has no earlier deadline; 30 s if not set, `None` for as long as it likes.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.timeout = timeout.into();
        self
    }

    /// Requests that are on their way at the same time, 1 at least; 100 if not set. At the limit `poll_ready` waits.
    #[must_use]
    pub fn in_flight_max(mut self, max: usize) -> Self {
        self.options.in_flight_max = max.max(1);
        self
    }

    /// The longest request that is sent and the longest reply that is read, in bytes; 4 MiB if not set.
    #[must_use]
    pub fn message_len_max(mut self, max: usize) -> Self {
        self.options.message_len_max = max;
        self
    }

    /// How messages are written; [`Encoding::Postcard`] if not set.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.options.encoding = encoding;
        self
    }

    /// Encrypts the connection, to the host whose name the address has. ALPN is set here.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, connector: dapple_tls::TlsConnector) -> Self {
        self.options.tls = Some(connector);
        self
    }

    /// The peer. It connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Malformed`]: the address is none.
    pub fn build(self) -> Result<Peer, RemoteError> {
        let authority = parse_address(&self.address).map_err(RemoteError::Malformed)?;
        Ok(Peer { link: Arc::new(Link::new(self.address, authority, self.options)) })
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(5),
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

/// `HOST:PORT`, with a port that can be connected to.
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
