//! Errors before a stream exists. Afterwards they are `io::Error`, as in every stream.

use std::io;
use std::time::Duration;

use crate::CertificateError;

/// Why there is no encrypted connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client does not speak TLS: most often it speaks HTTP to a port for HTTPS.
    #[error("the client does not speak TLS; it began with {:?}", String::from_utf8_lossy(first_bytes.get(..40).unwrap_or(first_bytes)))]
    NotTls {
        /// Its first bytes, up to 1,024: enough to recognize HTTP, which deserves an answer in
        /// plain text.
        first_bytes: Vec<u8>,
    },
    /// The handshake did not end within the limit.
    #[error("the TLS handshake was not over after {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The other side ended the connection during the handshake, or before it.
    #[error("the other side ended the connection during the TLS handshake")]
    Ended,
    /// The two sides could not agree, or the other side broke the protocol.
    #[error("the TLS handshake failed: {0}")]
    Protocol(#[from] rustls::Error),
    /// A server name that is neither a host name nor an address.
    #[error("{0:?} is not a name that a certificate can have; give a host name or an IP address, without port")]
    Name(String),
    /// The certificates could not be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::TimedOut(_) => io::ErrorKind::TimedOut,
            Error::Ended => io::ErrorKind::UnexpectedEof,
            Error::Io(_) => {
                let Error::Io(error) = error else { unreachable!("just matched") };
                return error;
            }
            Error::Name(_) | Error::Certificate(_) => io::ErrorKind::InvalidInput,
            Error::NotTls { .. } | Error::Protocol(_) => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
