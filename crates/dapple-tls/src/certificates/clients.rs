//! Clients that log in with a certificate.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use dapple_sched::environment;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::{CertificateError, der, pem, verifier};

/// The authorities that sign the certificates of clients, and the certificates that these have revoked. Cheap to clone.
///
/// A client that shows none is let in, too, and a certificate of another authority ends the handshake. Whether a client needs one is
/// the service's decision, which sees it as [`PeerCertificates`].
#[derive(Clone)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

/// The certificates that the other side of a connection showed at its handshake, its own first, at least one. Requests served by `dapple::serve`
/// have it among their extensions. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificates(Arc<[CertificateDer<'static>]>);

impl ClientAuthorities {
    /// Reads a file in PEM format with the certificates of authorities and, if there are any, their lists of revoked certificates
    /// (`X509 CRL`), on a thread of the blocking pool. For an authority without a list, none is revoked; with several, those that any of them
    /// names.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if dropped before it resolves, it has changed nothing.
    ///
    /// # Errors
    ///
    /// See [`CertificateError`].
    pub async fn load(file: impl Into<PathBuf>) -> Result<Self, CertificateError> {
        let file = file.into();
        let read = dapple_io::blocking::spawn_blocking(move || {
            let (authorities, revoked) = pem::authorities(&file)?;
            let malformed =
                |error: &dyn fmt::Display| CertificateError::Malformed { path: file.clone(), what: error.to_string() };
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority.clone()).map_err(|error| malformed(&error))?;
                if !verifier::is_authority(&authority) {
                    return Err(CertificateError::NoAuthority { path: file.clone() });
                }
            }
            Ok(ClientAuthorities(verifier::of(roots, revoked).map_err(|error| malformed(&error))?))
        });
        read.await.map_err(|error| CertificateError::Pool(io::Error::other(error)))?
    }

    /// Checks certificates again, at the present time: those of a connection that was made under other authorities, or long ago.
    ///
    /// # Errors
    ///
    /// They are not valid now, or not of these authorities, or revoked.
    pub fn check(&self, certificates: &PeerCertificates) -> crate::Result<()> {
        let now = environment::system_now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(now);
        let Some((own, others)) = certificates.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented.into());
        };
        self.0.verify_client_cert(own, others, now).map(drop).map_err(Into::into)
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.0.clone()
    }
}

impl PeerCertificates {
    /// `None` without a certificate.
    pub fn new(chain: &[CertificateDer<'static>]) -> Option<PeerCertificates> {
        (!chain.is_empty()).then(|| PeerCertificates(chain.into()))
    }

    /// The name of the owner: the common name of the subject, or without one the first alternative name that is a host name or an e-mail
    /// address. `None` if there is no such name, or several common names, or it is no text.
    pub fn name(&self) -> Option<String> {
        der::owner(self.0.first()?)
    }
}

impl Deref for PeerCertificates {
    type Target = [CertificateDer<'static>];

    fn deref(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").finish_non_exhaustive()
    }
}
