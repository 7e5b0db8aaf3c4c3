//! A certificate authority for the servers, which also renews their certificates.

use std::fmt::Display;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

use super::target::NAME;

/// A certificate authority, with a folder for the server's files, deleted on drop.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) root: CertificateDer<'static>,
    folder: PathBuf,
}

impl Authority {
    pub(crate) fn make() -> Result<Authority, String> {
        let folder = std::env::temp_dir().join(format!("dapple-soak-{}-secrets", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut parameters = CertificateParams::new(Vec::new()).map_err(failed)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(failed)?;
        let root = parameters.self_signed(&key).map_err(failed)?.der().clone();
        let authority = Authority { issuer: Issuer::new(parameters, key), root, folder };
        authority.renew()?;
        Ok(authority)
    }

    /// Replaces the server's certificate and its key; returns the new one.
    pub(crate) fn renew(&self) -> Result<CertificateDer<'static>, String> {
        let key = KeyPair::generate().map_err(failed)?;
        let parameters = CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(failed)?;
        let [chain_file, key_file] = self.files();
        std::fs::write(&chain_file, certificate.pem()).map_err(|error| format!("{chain_file}: {error}"))?;
        std::fs::write(&key_file, key.serialize_pem()).map_err(|error| format!("{key_file}: {error}"))?;
        Ok(certificate.der().clone())
    }

    /// The files of the certificate and of its key.
    pub(crate) fn files(&self) -> [String; 2] {
        ["server.crt", "server.key"].map(|name| self.folder.join(name).display().to_string())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn failed(error: impl Display) -> String {
    format!("no certificate could be made: {error}")
}
