//! The server side of handshakes.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dapple_io::Connection;
use dapple_io::time::timeout;
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;

use crate::buffers::{Buffer, Kind};
use crate::certificates::{Certificates, Noting};
use crate::hello::{FirstBytes, classify};
use crate::stream::{Core, Session, TlsStream, poll_fill};
use crate::{Error, Result};

/// Makes encrypted streams of incoming connections. Cheap to clone: clones share their
/// configuration.
///
/// Sessions are resumed with tickets that the clients keep; the keys of the tickets change every
/// six hours. TLS 1.2 clients without tickets resume from a cache of 4,096 sessions. AES-128-GCM is
/// preferred if the processor has AES and the client offers it, unless the client prefers ChaCha20.
#[derive(Clone)]
pub struct TlsAcceptor {
    configs: Arc<ArcSwap<Configs>>,
}

/// Identical except for the order of ciphers.
struct Configs {
    ours_first: Arc<ServerConfig>,
    client_first: Arc<ServerConfig>,
}

impl TlsAcceptor {
    /// An acceptor for TLS 1.3 and 1.2 with these certificates, without ALPN.
    ///
    /// # Errors
    ///
    /// The certificates cannot be used, or the system has no random numbers.
    pub fn new(certificates: Certificates) -> Result<Self> {
        Self::with_alpn(certificates, [])
    }

    /// As [`new`](Self::new), with the protocols to negotiate, the best first: `["h2",
    /// "http/1.1"]`.
    ///
    /// # Errors
    ///
    /// As `new`.
    pub fn with_alpn<'a>(certificates: Certificates, alpn: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self::from_config(certificates.server_config(alpn)?))
    }

    /// An acceptor with your own configuration, for example with client certificates. Turns early
    /// data off, because it can be replayed.
    pub fn from_config(config: ServerConfig) -> Self {
        TlsAcceptor { configs: Arc::new(ArcSwap::from_pointee(Configs::new(config))) }
    }

    /// Uses other certificates for handshakes that begin from now on. Established connections
    /// continue, and sessions can still be resumed.
    ///
    /// A failed load changes nothing, because loading is a separate step: [`Certificates::load`],
    /// which explains its errors.
    pub fn reload(&self, certificates: Certificates) {
        let mut config = ServerConfig::clone(&self.configs.load().ours_first);
        config.cert_resolver = certificates.resolver();
        self.configs.store(Arc::new(Configs::new(config)));
    }

    /// Uses another configuration for handshakes that begin from now on. Established connections continue. Sessions can still be resumed
    /// only if both configurations have the same tickets; those of [`Certificates::server_config`] have not.
    pub fn reload_config(&self, config: ServerConfig) {
        self.configs.store(Arc::new(Configs::new(config)));
    }

    /// Does the handshake of an incoming connection, within `limit`.
    ///
    /// The task that awaits it does the work, some 200 microseconds of CPU: use the connection's
    /// own task, not the one that accepts connections.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if dropped before it resolves, it closes the connection.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::NotTls`] has the first bytes of a client without TLS. The connection
    /// is closed; to answer such a client use [`accept_or_return`](Self::accept_or_return).
    pub async fn accept<S: Connection>(&self, connection: S, limit: Duration) -> Result<TlsStream<S>> {
        self.accept_or_return(connection, limit).await.map_err(|(error, _connection)| error)
    }

    /// As [`accept`](Self::accept), but returns the connection with the error, for example to
    /// answer a client that speaks HTTP.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if dropped before it resolves, it closes the connection.
    ///
    /// # Errors
    ///
    /// As `accept`.
    pub async fn accept_or_return<S: Connection>(
        &self,
        connection: S,
        limit: Duration,
    ) -> Result<TlsStream<S>, (Error, S)> {
        let handshake = timeout(limit, self.handshake(&connection)).await;
        match handshake.unwrap_or(Err(Error::TimedOut(limit))) {
            Ok(core) => TlsStream::new(connection, core, None),
            Err(error) => Err((error, connection)),
        }
    }

    async fn handshake(&self, connection: &impl Connection) -> Result<Core> {
        // The session is made with the first bytes, so a silent client costs almost nothing.
        let mut incoming = Buffer::new(Kind::Incoming);
        let count = poll_fn(|cx| poll_fill(&mut incoming, connection, cx)).await?;
        if count == 0 {
            return Err(Error::Ended);
        }
        let FirstBytes::Hello { prefers_chacha } = classify(incoming.filled()) else {
            let first_bytes = incoming.filled();
            return Err(Error::NotTls { first_bytes: first_bytes[..count.min(FIRST_BYTES_MAX)].to_vec() });
        };
        let session = UnbufferedServerConnection::new(self.config(prefers_chacha))?;
        let mut core = Core::new(Session::Server(Box::new(session)), incoming);
        poll_fn(|cx| core.poll_handshake(connection, cx)).await?;
        Ok(core)
    }

    fn config(&self, prefers_chacha: bool) -> Arc<ServerConfig> {
        let configs = self.configs.load();
        if prefers_chacha { configs.client_first.clone() } else { configs.ours_first.clone() }
    }
}

impl Configs {
    fn new(mut config: ServerConfig) -> Self {
        config.max_early_data_size = 0;
        config.send_half_rtt_data = false;
        config.cert_resolver = Noting::around(config.cert_resolver);
        let mut client_first = config.clone();
        client_first.ignore_client_order = false;
        Configs { ours_first: Arc::new(config), client_first: Arc::new(client_first) }
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

/// The limit of kept bytes of a client without TLS.
const FIRST_BYTES_MAX: usize = 1024;
