//! A new certificate for the loopback address in each run.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Files in PEM.
pub(super) struct Certificate {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificate {
    /// Makes one (ECDSA, P-256, as on most sites) and writes it to this folder.
    pub(super) fn write(folder: &Path) -> Result<Certificate> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
        let certificate = Certificate { chain: folder.join("chain.pem"), key: folder.join("key.pem") };
        std::fs::write(&certificate.chain, made.cert.pem()).context("cannot write the certificate")?;
        std::fs::write(&certificate.key, made.signing_key.serialize_pem()).context("cannot write its key")?;
        Ok(certificate)
    }
}
