//! What can be wrong with certificates and keys, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// No file was named at all.
    #[error("there is no certificate; name at least one, with its key")]
    Nothing,
    /// A file cannot be read.
    #[error("cannot read {}: {source}; check the path, and that this user may read it", path.display())]
    Unreadable {
        /// Of the file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file for certificates has none.
    #[error("{} has no certificate: it must have a section `-----BEGIN CERTIFICATE-----`{hint}", path.display())]
    NoCertificate {
        /// Of the file.
        path: PathBuf,
        /// What it seems to be, as a part of a sentence, or nothing.
        hint: &'static str,
    },
    /// The file for the key has none.
    #[error("{} has no private key: it must have a section `-----BEGIN PRIVATE KEY-----` (or `RSA` or `EC PRIVATE KEY`){hint}", path.display())]
    NoKey {
        /// Of the file.
        path: PathBuf,
        /// What it seems to be, as a part of a sentence, or nothing.
        hint: &'static str,
    },
    /// The key needs a password, and a server has nobody to ask.
    #[error("the key in {} is encrypted; decrypt it with `openssl pkey -in {} -out key.pem`, and let only the server's user read it", path.display(), path.display())]
    Encrypted {
        /// Of the file.
        path: PathBuf,
    },
    /// A certificate or a PEM section cannot be understood.
    #[error("{} is damaged: {what}; take it anew from where it was made", path.display())]
    Malformed {
        /// Of the file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The key is of a kind that is not known.
    #[error("the key in {} cannot be used: {what}; use one for ECDSA (P-256, P-384), Ed25519 or RSA (2048 bits or more)", path.display())]
    Key {
        /// Of the file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} does not belong to the first certificate in {}; the server's own certificate must come first there, and the two must be made together", key.display(), chain.display())]
    Mismatch {
        /// Of the file with certificates.
        chain: PathBuf,
        /// Of the file with the key.
        key: PathBuf,
    },
    /// A certificate for trying could not be made.
    #[error("no certificate can be made for these names: {0}")]
    SelfSigned(String),
    /// The blocking pool did not read the files.
    #[error("the files could not be read: {0}")]
    Pool(io::Error),
}
