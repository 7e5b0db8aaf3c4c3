//! TLS to upstreams.

use std::fs;
use std::path::Path;

use dapple::tls::TlsConnector;
use dapple::tls::rustls::pki_types::CertificateDer;
use dapple::tls::rustls::pki_types::pem::PemObject;

/// Trusts the certificates in this file, or Mozilla's authorities. Blocks.
///
/// # Errors
///
/// The reason why the file cannot be read or has no certificates.
pub(crate) fn trusting(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    let Some(path) = authorities else { return TlsConnector::new().map_err(|error| error.to_string()) };
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let roots = roots.map_err(|error| error.to_string())?;
    if roots.is_empty() {
        return Err("the file has no certificates".to_owned());
    }
    TlsConnector::with_roots(roots).map_err(|error| error.to_string())
}
