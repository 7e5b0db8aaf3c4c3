//! Reads certificates and keys from files.

use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::{CertificateError, CertificateFiles, Entry};

pub(super) fn load(files: &CertificateFiles) -> Result<Entry, CertificateError> {
    let chain = chain(&files.chain)?;
    let key = key(&files.key)?;
    Entry::new(files, chain, key)
}

/// The certificates of authorities, and the lists of those that they revoked.
pub(super) fn authorities(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<Revoked>), CertificateError> {
    let text = read(path)?;
    let revoked: Result<Vec<_>, _> = Revoked::pem_slice_iter(&text).collect();
    Ok((chain_of(&text, path)?, revoked.map_err(|error| malformed(path, &error))?))
}

type Revoked = CertificateRevocationListDer<'static>;

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    chain_of(&read(path)?, path)
}

fn chain_of(text: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| malformed(path, &error))?;
    if chain.is_empty() {
        let hint = if has(text, "PRIVATE KEY-----") {
            "; this file has a key, perhaps the two are mixed up"
        } else {
            not_pem(text)
        };
        return Err(CertificateError::NoCertificate { path: path.to_owned(), hint });
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let text = read(path)?;
    if has(&text, "-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(&text, "Proc-Type: 4,ENCRYPTED") {
        return Err(CertificateError::Encrypted { path: path.to_owned() });
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let hint = if has(&text, "-----BEGIN CERTIFICATE-----") {
                "; this file has a certificate, perhaps the two are mixed up"
            } else {
                not_pem(&text)
            };
            Err(CertificateError::NoKey { path: path.to_owned(), hint })
        }
        Err(error) => Err(malformed(path, &error)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    std::fs::read(path).map_err(|source| CertificateError::Unreadable { path: path.to_owned(), source })
}

fn malformed(path: &Path, error: &pem::Error) -> CertificateError {
    CertificateError::Malformed { path: path.to_owned(), what: error.to_string() }
}

fn has(text: &[u8], what: &str) -> bool {
    text.windows(what.len()).any(|window| window == what.as_bytes())
}

fn not_pem(text: &[u8]) -> &'static str {
    match text {
        [] => "; the file is empty",
        // A sequence of DER with a length in two bytes.
        [0x30, 0x82, ..] => {
            "; it is in DER format, convert it with `openssl x509 -inform der` or `openssl pkey -inform der`"
        }
        _ => "",
    }
}
