//! Problems with certificates and keys, and their remedies.

use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// No file was named.
    #[error("there is no certificate; name at least one, with its key")]
    Nothing,
    /// A file cannot be read.
    #[error("cannot read {}: {source}; check the path, and that this user may read it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file for certificates has none.
    #[error("{} has no certificate: it must have a section `-----BEGIN CERTIFICATE-----`{hint}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// A guess at its content, as a part of a sentence, or empty.
        hint: &'static str,
    },
    /// A file for authorities has another certificate: its owner could sign certificates of any user.
    #[error("{} has a certificate of no authority: its basic constraints must say `CA:TRUE`; give that of the authority that signed it", path.display())]
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// The file for the key has none.
    #[error("{} has no private key: it must have a section `-----BEGIN PRIVATE KEY-----` (or `RSA` or `EC PRIVATE KEY`){hint}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// A guess at its content, as a part of a sentence, or empty.
        hint: &'static str,
    },
    /// The key needs a password, and a server cannot ask for one.
    #[error("the key in {} is encrypted; decrypt it with `openssl pkey -in {} -out key.pem`, and let only the server's user read it", path.display(), path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// A certificate or a PEM section is invalid.
    #[error("{} is damaged: {what}; copy it again from its source", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The kind of the key is unknown.
    #[error("the key in {} cannot be used: {what}; use one for ECDSA (P-256, P-384), Ed25519 or RSA (2048 bits or more)", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not belong to the first certificate in {}; the server's own certificate must come first there, and the two must be made together", key.display(), chain.display())]
    Mismatch {
        /// The file with certificates.
        chain: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// A test certificate could not be made.
    #[error("no certificate can be made for these names: {0}")]
    SelfSigned(String),
    /// The blocking pool did not read the files.
    #[error("the files could not be read: {0}")]
    Pool(io::Error),
}
