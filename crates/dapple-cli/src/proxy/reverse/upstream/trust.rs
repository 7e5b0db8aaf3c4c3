//! Encryption towards upstreams.

use std::fs;
use std::path::Path;

use dapple::tls::TlsConnector;
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::rustls::pki_types::pem::PemObject;

/// Trusts the certificates in this file, or those of Mozilla's authorities. Blocks.
///
/// # Errors
///
/// The file has no certificates, or cannot be read: why.
pub(crate) fn trusting(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    let Some(path) = authorities else { return TlsConnector::new().map_err(|error| error.to_string()) };
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let roots = roots.map_err(|error| error.to_string())?;
    if roots.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    TlsConnector::with_roots(roots).map_err(|error| error.to_string())
}
