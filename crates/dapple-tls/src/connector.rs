//! The client side of handshakes.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::Connection;
use dapple_io::time::timeout;
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::buffers::{Buffer, Kind};
use crate::certificates::Certificates;
use crate::pin::Pin;
use crate::provider::provider;
use crate::stream::{Core, Session, TlsStream};
use crate::{Error, Result};

/// Makes encrypted streams of connections to servers. Cheap to clone: clones share their
/// configuration, and the sessions of the last 256 servers for resumption.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
}

impl TlsConnector {
    /// Trusts the roots that Mozilla trusts, as compiled in (the crate `webpki-roots`).
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn new() -> Result<Self> {
        Self::with_root_store(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// Trusts only these certificates and those that they sign.
    ///
    /// # Errors
    ///
    /// One of them is not a certificate.
    pub fn with_roots<'a>(roots: impl IntoIterator<Item = CertificateDer<'a>>) -> Result<Self> {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.into_owned())?;
        }
        Self::with_root_store(store)
    }

    /// Trusts one server, by its certificate itself.
    ///
    /// ```
    /// use dapple_tls::{Pin, TlsConnector};
    ///
    /// let pin = Pin::first_use();
    /// let connector = TlsConnector::pinned(&pin)?;
    /// // After the first handshake it is to be kept, for `Pin::of` the next time.
    /// assert_eq!(pin.fingerprint(), None);
    /// # let _ = connector;
    /// # Ok::<(), dapple_tls::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn pinned(pin: &Pin) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = builder.dangerous().with_custom_certificate_verifier(pin.verifier());
        Ok(Self::from_config(builder.with_no_client_auth()))
    }

    fn with_root_store(store: RootCertStore) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        Ok(Self::from_config(builder.with_root_certificates(store).with_no_client_auth()))
    }

    /// A connector with your own configuration, for example with a client certificate. Turns early
    /// data off.
    pub fn from_config(mut config: ClientConfig) -> Self {
        config.enable_early_data = false;
        TlsConnector { config: Arc::new(config) }
    }

    /// Shows the first of these certificates to servers that ask for one. Sessions of connections without it are not resumed.
    #[must_use]
    pub fn showing(mut self, certificates: &Certificates) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.client_auth_cert_resolver = certificates.shown();
        config.resumption = Resumption::default();
        self
    }

    /// Sets the protocols to negotiate, the best first: `["h2", "http/1.1"]`.
    #[must_use]
    pub fn alpn<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> Self {
        let protocols = protocols.into_iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::make_mut(&mut self.config).alpn_protocols = protocols;
        self
    }

    /// Does the handshake with the server of this name, a host name or an IP address, within
    /// `limit`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if dropped before it resolves, it closes the connection.
    ///
    /// # Errors
    ///
    /// See [`Error`]; an untrusted certificate is an [`Error::Protocol`].
    pub async fn connect<S: Connection>(&self, name: &str, connection: S, limit: Duration) -> Result<TlsStream<S>> {
        let server = ServerName::try_from(name).map_err(|_| Error::Name(name.to_owned()))?.to_owned();
        let session = UnbufferedClientConnection::new(self.config.clone(), server)?;
        let mut core = Core::new(Session::Client(Box::new(session)), Buffer::new(Kind::Incoming));
        let handshake = timeout(limit, poll_fn(|cx| core.poll_handshake(&connection, cx))).await;
        handshake.unwrap_or(Err(Error::TimedOut(limit)))?;
        TlsStream::new(connection, core, Some(name.into())).map_err(|(error, _connection)| error)
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}
